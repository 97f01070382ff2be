"""A BCNN as the backbone of a torch model of one's own: here it says where in a picture a bright square is.

    python examples/backbone.py --updates 40

The decoder is taken off, so the network makes a feature map; the head is ordinary torch. Trained in the paper's two steps on
squares drawn on the fly, then audited: is every matrix product still 1 bit x 1 bit, and which layer breaks it if not?
"""

import argparse

import torch
from torch import Tensor, nn

from bcnn import Level, NetworkConfig
from bcnn.counting.audit import audit
from bcnn.nets.bcnn import Network

SIDE, CELLS = 32, 4  # the picture, and the map that three levels leave of it


class Locator(nn.Module):
    """Images N,3,32,32 -> N,16: a score for each cell of the 4 x 4 map."""

    def __init__(self) -> None:
        super().__init__()
        levels = (Level(1), Level(1), Level(1))  # each halves the map and doubles the channels
        self.backbone = Network(NetworkConfig("locator", (SIDE, SIDE), stem=Level(1, 1, 2), levels=levels))
        # Or one you have trained: self.backbone, _ = bcnn.training.checkpoint.load("runs/cifar10")
        self.backbone.decoder = nn.Identity()
        self.head = nn.Conv2d(
            self.backbone.config.channels_out, 1, 1
        )  # one output: a product with a vector, it may be real

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.backbone(images)).flatten(1)


def squares(count: int) -> tuple[Tensor, Tensor]:
    """Noise with a square of 8 x 8 brighter pixels, and the cell that holds its centre."""
    corner = torch.randint(0, SIDE - 8 + 1, (count, 2, 1))
    inside = (torch.arange(SIDE) >= corner) & (torch.arange(SIDE) < corner + 8)  # N, 2, SIDE: its rows, its columns
    square = inside[:, 0, :, None] & inside[:, 1, None, :]
    row, column = ((corner[..., 0] + 4) * CELLS // SIDE).unbind(1)
    return torch.randn(count, 3, SIDE, SIDE) * 0.5 + 2.0 * square[:, None], row * CELLS + column


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=150, help="of each step")
    updates = parser.parse_args().updates
    torch.manual_seed(0)
    model = Locator()
    for weights in ("real", "binary"):  # step 1, step 2 (sec. 5 of the paper)
        model.train().backbone.weights = weights
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(updates):
            images, cells = squares(32)
            loss = nn.functional.cross_entropy(model(images), cells)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        images, cells = squares(512)
        with torch.no_grad():
            found = (model.eval()(images).argmax(1) == cells).float().mean()
        print(f"{weights} weights: {found:.1%} of 512 new squares found, by chance it were {1 / CELLS**2:.1%}")

    one = squares(1)[0]
    report = audit(model, one)
    print(f"{len(report.matrix)} matrix products, all 1 x 1 bit: {report.passes}")
    model.head = nn.Conv2d(model.backbone.config.channels_out, 8, 1)
    for failure in audit(model, one).failures:  # eight outputs make a matrix product of it
        print(f"with eight real outputs instead, module {failure.module!r} multiplies {failure.bits} bits")


if __name__ == "__main__":
    main()
