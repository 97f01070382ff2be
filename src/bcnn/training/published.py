"""Other papers' recipes: each network's own training as a complete `TrainConfig`, under the network's name. No torch.

Nobody here has trained these to their published accuracy: the docstrings say what was published and where our trainer differs.
Official codes were read for Bi-Real Net, Group-Net, MeliusNet, ReActNet and XNOR-Net's AlexNet; the rest is from papers.

Reading: augmentation is the ImageNet habit (random resized crop, flip) everywhere, for 32 x 32 images a shift of 4 and a flip.
Reading: where a paper decays all weights, here convolution weights decay, as in the paper's own step 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bcnn.data.config import Augment, DataConfig
from bcnn.nets.network_spec import resolve
from bcnn.training import recipes
from bcnn.training.config import Step, TrainConfig

TENTHS = ((40, 0.1), (60, 0.01), (70, 0.001))
BINARY = Step(name="binary", weights="binary", warmup=0, lr=1e-3, weight_decay=0.0)  # what most of them have in common


def _imagenet(network: str, batch: int, *steps: Step) -> TrainConfig:
    data = DataConfig(crop=0.875, augment=Augment(flip=True), workers=8)
    return TrainConfig(network, resolve(network), data, steps, batch=batch, part=0)


def bnn_vgg() -> TrainConfig:
    """BNN's VGG on CIFAR-10: squared hinge, Adam 1e-3 to 3e-7 exponentially over 500 epochs, batch 50, latent weights clamped to [-1, 1]
    after every update (a rule of the network), rates of binary layers times sqrt((inputs + outputs) / 1.5). Published: 88.6 %.

    Reading: images are normalised by mean and deviation, not scaled to [-1, 1].
    """
    how = replace(BINARY, epochs=500, decay="exponential", lr_last=3e-4)
    step = replace(how, loss="squared hinge", glorot=True, clip=True)
    data = recipes.cifar10().data
    return TrainConfig("bnn-vgg", resolve("bnn-vgg"), data, (step,), batch=50, part=0, evaluate_every=10)


def xnornet_alexnet() -> TrainConfig:
    """XNOR-Net's AlexNet on ImageNet: Adam 1e-3, 5e-4, 1e-4, 5e-5, 1e-5 from epochs 1, 19, 30, 44, 53 of 55, weight decay 5e-4 up to
    epoch 29, batch 800. Its gradient of the weights, (a [|w| < 1] + 1 / n)(1 - 1 / C), and centring and clamping after each update
    are rules of the network. Published: 44.2 % in the paper, 43.3 % by its code.

    Reading: where decay ends a step ends, and Adam's state is forgotten.
    """
    decayed = replace(BINARY, name="decayed", epochs=29, decay="steps", drops=((18, 0.5),), weight_decay=5e-4)
    free = replace(decayed, name="free", epochs=26, lr=1e-4, drops=((14, 0.5), (23, 0.1)), weight_decay=0.0)
    return _imagenet("xnornet-alexnet", 800, decayed, free)


def xnornetpp_r18() -> TrainConfig:
    """XNOR-Net++ on ImageNet: Adam 1e-3, a tenth at a time, 80 epochs. Published: 57.1 %.

    Reading: no code was released and its epochs of decay are not known to us; here 40, 60 and 70, as in Real-to-Binary
    Net, with which it shares authors. Batch 256 is ours.
    """
    return _imagenet("xnornetpp-r18", 256, replace(BINARY, epochs=80, decay="steps", drops=TENTHS))


def birealnet_18() -> TrainConfig:
    """Bi-Real Net 18 on ImageNet: Adam 1e-3 linearly to 0 over 256 epochs, batch 512, label smoothing 0.1, no weight decay.
    Published: 56.4 %."""
    step = replace(BINARY, epochs=256, decay="linear", lr_last=0.0, smoothing=0.1)
    return _imagenet("birealnet-18", 512, step)


def birealnet_34() -> TrainConfig:
    """As `birealnet_18`. Published: 62.2 %."""
    return replace(birealnet_18(), recipe="birealnet-34", network=resolve("birealnet-34"))


def birealnet_50() -> TrainConfig:
    """As `birealnet_18` with 5e-4 and batch 256. Published: 62.6 %."""
    same = birealnet_18()
    step = replace(same.steps[0], lr=5e-4)
    return replace(same, recipe="birealnet-50", network=resolve("birealnet-50"), steps=(step,), batch=256)


def groupnet_r18() -> TrainConfig:
    """Group-Net, ResNet-18, 5 bases, on ImageNet: step 1 with real weights and tanh in the place of sign, SGD 0.05, a tenth at epochs 25
    and 35 of 40; step 2 binary, Adam 5e-4, a tenth at 20 and 30 of 40; batch 256. Published: 64.8 %.

    Reading: step 1 is the float twin, which has a hard tanh.
    """
    step1 = replace(BINARY, name="step1", weights="float", epochs=40, lr=0.05, optimizer="sgd", decay="steps", drops=((25, 0.1), (35, 0.01)))  # fmt: skip
    step2 = replace(BINARY, name="step2", epochs=40, lr=5e-4, decay="steps", drops=((20, 0.1), (30, 0.01)))
    return _imagenet("groupnet-r18", 256, step1, step2)


def meliusnet_22() -> TrainConfig:
    """MeliusNet 22 on ImageNet: RAdam 0.002 on a cosine, 120 epochs, binary weights without decay. Published: 63.6 %.

    Reading: no convolution decays here. Batch 256 is ours.
    """
    return _imagenet("meliusnet-22", 256, replace(BINARY, epochs=120, lr=2e-3, lr_last=0.0, optimizer="radam"))


def reactnet_a() -> TrainConfig:
    """ReActNet-A on ImageNet: real, then binary weights, each Adam 1.25e-3 linearly to 0 over 128 epochs, batch 256, weight decay 1e-5,
    then 0; the loss is the cross entropy with ResNet-34's outputs alone. Published: 69.4 %; 69.5 % by its code.

    The official code loses the convolutions of step 1 on the way to step 2 (a renamed key); here they are carried over.
    """
    both = replace(BINARY, epochs=128, lr=1.25e-3, decay="linear", lr_last=0.0, teacher="torchvision:resnet34")
    step1, step2 = replace(both, name="step1", weights="real", weight_decay=1e-5), replace(both, name="step2")
    return _imagenet("reactnet-a", 256, step1, step2)


def reactnet_r18() -> TrainConfig:
    """As `reactnet_a` with 2.5e-3 and batch 512. Published: 65.9 %."""
    same = reactnet_a()
    steps = tuple(replace(step, lr=2.5e-3) for step in same.steps)
    return replace(same, recipe="reactnet-r18", network=resolve("reactnet-r18"), steps=steps, batch=512)


def real2bin_r18() -> TrainConfig:
    """Real-to-Binary Net on ImageNet: each stage learns from the one before: a real network, one with tanh, binary activations, then
    both binary; Adam 1e-3, the last stage 2e-4, a tenth at epochs 40, 60 and 70 of 75. Published: 65.4 %.

    Reading: the first two stages are one here, the float twin, which has a hard tanh. Stages match outputs alone: the published
    attention matching needs levels, which the trainer knows of the paper's networks only. Batch 256 is ours.
    """
    twin = replace(BINARY, name="tanh", weights="float", epochs=75, weight_decay=1e-5, decay="steps", drops=TENTHS)
    signs = replace(twin, name="activations", weights="real", teacher="tanh")
    both = replace(signs, name="both", weights="binary", lr=2e-4, weight_decay=0.0, teacher="activations")
    return _imagenet("real2bin-r18", 256, twin, signs, both)


PUBLISHED: dict[str, Callable[[], TrainConfig]] = {
    "bnn-vgg": bnn_vgg,
    "xnornet-alexnet": xnornet_alexnet,
    "xnornetpp-r18": xnornetpp_r18,
    "birealnet-18": birealnet_18,
    "birealnet-34": birealnet_34,
    "birealnet-50": birealnet_50,
    "groupnet-r18": groupnet_r18,
    "meliusnet-22": meliusnet_22,
    "reactnet-a": reactnet_a,
    "reactnet-r18": reactnet_r18,
    "real2bin-r18": real2bin_r18,
}
