"""`verify` passes what is right, and each check fails for the fault it is there for, naming where."""

import json

import fakes
import numpy as np
import plain_torch_networks
import pytest
import samples
import torch
from PIL import Image
from tampered_files import forged, joined, parts

import bcnn
from bcnn.base.errors import UserError
from bcnn.base.images import spread
from bcnn.integers.quantize import fixed
from bcnn.integers.synthetic_images import pictures
from bcnn.lowering.lower import lower
from bcnn.packed import packfile
from bcnn.program import ops
from bcnn.program.interpret import interpret_maps
from bcnn.program.program import Program
from bcnn.verification.verify import AGREEMENT, compare_engine, verify
from bcnn.verification.verify_torch import of_checkpoint

torch.set_num_threads(1)


def trained(program):
    return of_checkpoint("run")


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.bcnn"
    packfile.save(samples.every_op(("a", "b", "c")), path)
    return path


@pytest.fixture
def lowered(tmp_path):
    """What a checkpoint holds, to be compared with it."""
    path = tmp_path / "lowered.bcnn"
    packfile.save(lower(samples.network(), samples.MEAN, samples.STD, ("a", "b", "c")), path)
    return path


@pytest.fixture
def photos(tmp_path):
    for index, name in enumerate("abcabc"):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(samples.image(10, 12, index)).save(folder / f"{index}.png")
    return tmp_path / "photos"


def outcome(checks):
    return {check.name: check.passed for check in checks}


def failure(checks):
    """The detail of the one check that failed."""
    (failed,) = [check for check in checks if not check.passed]
    return f"{failed.name}: {failed.detail}"


def resigned(path, change):
    """Change the bits of a packed file and make every hash right again."""
    header, program, data = parts(path.read_bytes())
    path.write_bytes(forged(header, program, {**data, "bits": change(bytearray(data["bits"]))}))


def test_everything_passes(lowered, photos, monkeypatch):
    fakes.use_engine(monkeypatch)
    fakes.use_checkpoint(monkeypatch, samples.network())
    checks = outcome(verify(lowered, trained, data=photos))
    assert checks == dict.fromkeys(["file", "test vectors", "engine fast", "engine slow", "torch", "data"], True)


def test_without_checkpoint_and_data_torch_is_not_asked(model, monkeypatch):
    fakes.use_engine(monkeypatch)
    assert list(outcome(verify(model))) == ["file", "test vectors", "engine fast", "engine slow"]


def test_one_flipped_weight_bit_fails_by_its_hash(model, monkeypatch):
    fakes.use_engine(monkeypatch)
    header, _, data = parts(model.read_bytes())
    bits = bytearray(data["bits"])
    bits[-3] ^= 4
    model.write_bytes(joined(json.dumps(header).encode(), b"".join({**data, "bits": bits}.values())))
    checks = list(verify(model))
    assert len(checks) == 1
    assert "does not match its hash" in failure(checks)


def test_flipped_weight_bits_under_a_right_hash_fail_by_the_test_vectors(model, monkeypatch):
    fakes.use_engine(monkeypatch)
    resigned(model, lambda bits: bytes(byte ^ 0x15 for byte in bits))
    assert failure(verify(model)).startswith("test vectors: seed 0: 3 of 3 logits differ")


def test_program_that_is_not_the_checkpoints_fails_and_names_the_layer(lowered, tmp_path, monkeypatch):
    fakes.use_engine(monkeypatch)
    program = packfile.read(lowered)
    index = next(i for i, name in enumerate(program.names) if name.startswith("level1.0.conv1"))
    program.ops[index].branches[0].weight[0, 0, 0] ^= np.uint32(1)
    packfile.save(program, lowered)  # hashes and test vectors are those of the wrong program
    fakes.use_checkpoint(monkeypatch, samples.network())
    assert failure(verify(lowered, trained)).startswith(f"torch: op {index} ({program.names[index]}) is off by")


def test_checkpoint_of_another_network_fails(lowered, monkeypatch):
    fakes.use_engine(monkeypatch)
    fakes.use_checkpoint(
        monkeypatch, samples.network(samples.TINY.replace(branches=2, prelu="module", intensity=False))
    )
    assert "torch: op 0 of the program is" in failure(verify(lowered, trained))


def test_binary_weights_of_integers_must_be_the_checkpoints(lowered, tmp_path, monkeypatch):
    program = packfile.read(lowered)
    path = tmp_path / "integers.bcnn"
    packfile.save(fixed(program, pictures(*program.shapes[0][:2], 3)).program, path)
    fakes.use_checkpoint(monkeypatch, samples.network())
    (torchs,) = [check for check in verify(path, trained) if check.name == "torch"]
    assert torchs.passed
    assert torchs.detail.startswith(f"{sum(each.binary_params for each in program.counts()):,} binary weights equal")
    wrong = packfile.read(path)
    index = next(i for i, name in enumerate(wrong.names) if name.startswith("level1.0.conv1"))
    wrong.ops[index].branches[0].weight[0, 0, 0] ^= np.uint32(1)
    packfile.save(wrong, path)
    assert failure(verify(path, trained)) == (
        f"torch: the binary weights of {wrong.names[index]} are not those of the network"
    )


def test_engine_that_differs_in_one_op_fails_and_names_it(model, monkeypatch):
    fakes.use_engine(monkeypatch, wrong=4)
    assert "engine slow: op 4 (layer5.maxpool): 160 of 160 values differ" in failure(verify(model))


def test_engine_that_differs_in_a_batch_fails(model, monkeypatch):
    fakes.use_engine(monkeypatch, wrong_batch=True)
    failed = [check.detail for check in verify(model) if not check.passed]
    assert failed == ["a batch of 2: 6 of 6 logits differ"] * 2


def test_first_choices_that_differ_from_torchs_fail(lowered, photos, monkeypatch):
    fakes.use_engine(monkeypatch)
    other = samples.network()
    with torch.no_grad():
        other.decoder.linear.weight.neg_()
        other.decoder.linear.bias.neg_()
    fakes.use_checkpoint(monkeypatch, other)
    checks = outcome(verify(lowered, trained, data=photos))
    assert not checks["data"]
    assert not checks["torch"]


def test_data_without_checkpoint_must_agree_with_the_interpreter(model, photos, monkeypatch):
    fakes.use_engine(monkeypatch)
    *_, data = verify(model, data=photos)
    assert data.passed
    assert "first choice equals that of interpreter on 6 of 6 images" in data.detail
    assert data.detail.endswith("% right")


def test_folders_that_are_not_classes_give_no_accuracy(model, photos, monkeypatch):
    fakes.use_engine(monkeypatch)
    (photos / "a").rename(photos / "other")
    *_, data = verify(model, data=photos, limit=3)
    assert data.detail == "first choice equals that of interpreter on 3 of 3 images"


def test_limit_takes_images_of_all_classes():
    assert spread(list(range(10)), 5) == [0, 2, 4, 6, 8]
    assert spread(list(range(3)), 5) == [0, 1, 2]


def test_file_without_test_vectors_is_run_all_the_same(model, monkeypatch):
    packfile.save(packfile.read(model), model, test_seeds=())
    fakes.use_engine(monkeypatch, wrong=2)
    assert "engine slow: op 2" in failure(verify(model))


def test_missing_file_and_missing_data_are_errors_of_the_user(model, tmp_path, monkeypatch):
    fakes.use_engine(monkeypatch)
    with pytest.raises(UserError, match="make one with `bcnn pack"):
        list(verify(tmp_path / "none.bcnn"))
    with pytest.raises(UserError, match="takes a folder of images"):
        list(verify(model, data=tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no images in"):
        list(verify(model, data=tmp_path / "empty"))


def test_agreement_leaves_room_for_ties_but_not_for_a_wrong_layer():
    assert 0.9 <= AGREEMENT < 1


def test_real_engine_on_every_instruction_set(model, photos):
    engine = pytest.importorskip("bcnn.engine")
    names = [f"engine {isa.name}" for isa in engine.isas() if isa.supported]
    checks = outcome(verify(model, data=photos))
    assert checks == dict.fromkeys(["file", "test vectors", *names, "data"], True)


def test_real_engine_equals_the_interpreter_on_every_configuration():
    engine = pytest.importorskip("bcnn.engine")
    for config in (
        samples.TINY.replace(branches=2, prelu="module"),
        samples.TINY.replace(intensity=False, levels=[{"filter": 3}, {"replicate": 0.4, "stride": 1}]),
    ):
        program = lower(samples.network(config), samples.MEAN, samples.STD)
        images = [samples.image(8, 8, seed) for seed in range(3)]
        maps = [interpret_maps(program, image) for image in images]
        for isa in engine.isas():
            if isa.supported:
                passed, detail = compare_engine(engine.Engine(program, isa=isa.name), program, images, maps)
                assert passed, detail
    assert isinstance(program, Program)


@pytest.mark.parametrize("name", plain_torch_networks.STRANGERS)
def test_a_network_that_a_stranger_wrote_is_packed_and_verified(name, tmp_path):
    network, size = plain_torch_networks.stranger(name)
    program = lower(network, samples.MEAN, samples.STD, size=size)
    packfile.save(program, tmp_path / "m.bcnn")
    assert [check for check in verify(tmp_path / "m.bcnn") if not check.passed] == []
    packfile.save(packfile.read(tmp_path / "m.bcnn"), tmp_path / "again.bcnn")
    assert (tmp_path / "again.bcnn").read_bytes() == (tmp_path / "m.bcnn").read_bytes()


def test_a_program_without_classes_has_no_first_choices(tmp_path, photos, monkeypatch):
    fakes.use_engine(monkeypatch)
    path = tmp_path / "m.bcnn"
    packfile.save(samples.program(ops.MaxPool(0, ops.Window())), path)
    with pytest.raises(UserError, match=r"makes a map of \(4, 4, 3\)"):
        list(verify(path, data=photos))


def test_loaded_engine_gives_the_stored_logits(model):
    pytest.importorskip("bcnn.engine")
    packed = packfile.open_packed(model)
    vectors = np.stack([packfile.vector_image(seed, 8, 8) for seed in packed.test_seeds])
    assert np.array_equal(bcnn.load(model, threads=1)(vectors), packed.test_logits)


def test_a_small_file_with_huge_maps_is_refused_with_the_number(tmp_path):
    path = tmp_path / "huge.bcnn"
    packfile.save(samples.program(ops.MaxPool(0, ops.Window()), height=8192, width=8192), path, test_seeds=())
    assert failure(verify(path)).startswith("size: its maps take 1,610,612,736 bytes")


def test_a_file_beyond_the_limits_fails_with_the_limit(tmp_path):
    path = tmp_path / "huge.bcnn"
    pools = [ops.MaxPool(index, ops.Window()) for index in range(11)]
    image = ops.Input(8000, 4000, np.ones(3, np.float32), np.zeros(3, np.float32))
    huge = Program((image, *pools), ("",) * 12, limits=packfile.NO_LIMITS)
    packfile.save(huge, path, test_seeds=())
    assert "bytes of maps; the limit is 4,294,967,296" in failure(verify(path))
