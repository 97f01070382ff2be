"""Programs survive a round trip bit for bit, files have the promised size to the byte, and a write happens whole or not at all."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import zlib

import numpy as np
import pytest
import safetensors.numpy
import samples
from safetensors import safe_open

from bcnn.base import files
from bcnn.base.errors import UserError
from bcnn.nets.config import preset
from bcnn.packed import packfile
from bcnn.program import ops
from bcnn.program.interpret import interpret
from bcnn.program.program import Limits, Program

PROVENANCE = {"accuracy": 0.5, "config": {"P": [1, None, "ü"]}}


@pytest.fixture(scope="module")
def program():
    return samples.every_op(provenance=PROVENANCE)


@pytest.fixture
def model(program, tmp_path):
    packfile.save(program, tmp_path / "model.bcnn")
    return tmp_path / "model.bcnn"


def assert_same(one, other):
    """Two ops, branches, endings or windows are equal in every field."""
    assert type(one) is type(other)
    for (name, _, a), (_, _, b) in zip(one.fields(), other.fields(), strict=True):
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes(), name
        elif isinstance(a, tuple) and a and isinstance(a[0], ops.Part):
            for x, y in zip(a, b, strict=True):
                assert_same(x, y)
        elif isinstance(a, ops.Part):
            assert_same(a, b)
        else:
            assert a == b, name


def test_round_trip_keeps_every_bit_of_every_kind_of_op(program, model):
    again = packfile.read(model)
    for one, other in zip(program.ops, again.ops, strict=True):
        assert_same(one, other)
    for what in ("names", "labels", "crop", "provenance", "shapes"):
        assert getattr(again, what) == getattr(program, what)
    image = samples.image(8, 8)
    assert np.array_equal(interpret(program, image), interpret(again, image))


@pytest.mark.parametrize("k", [1, 31, 32, 33, 65])
@pytest.mark.parametrize("taps", [1, 9])
def test_round_trip_of_channel_counts_that_do_not_fill_words(k, taps, tmp_path):
    rng = np.random.default_rng(k)
    window = ops.Window((3, 3), (1, 1), (1, 1, 1, 1)) if taps == 9 else ops.Window()
    k = max(3, k)
    op = ops.BinaryConv(0, k, (samples.branch(rng, k, 5, (1, -1), taps),), window)
    sizes = packfile.save(samples.program(op), tmp_path / "m.bcnn")
    assert_same(packfile.read(tmp_path / "m.bcnn").ops[1], op)
    assert sizes.binary_weights <= -(-5 * taps * k // 8) + -(-k // 8)  # weights, and a pad of a bit a channel


@pytest.mark.parametrize("k", [33, 64])
def test_channels_whose_bits_are_all_zero_come_back(k, tmp_path):
    branch = samples.branch(np.random.default_rng(0), k, 3)
    branch.weight[...] = 0
    packfile.save(samples.program(ops.BinaryConv(0, k, (branch,))), tmp_path / "m.bcnn")
    again = packfile.read(tmp_path / "m.bcnn").ops[1].branches[0].weight
    assert again.shape == branch.weight.shape
    assert not again.any()


def test_the_same_program_gives_the_same_file(program, tmp_path, model):
    packfile.save(packfile.read(model), tmp_path / "again.bcnn")
    assert (tmp_path / "again.bcnn").read_bytes() == model.read_bytes()


def test_size_is_bits_and_numbers_and_header_to_the_byte(program, model):
    sizes = packfile.open_packed(model).sizes
    assert sizes.total == model.stat().st_size
    arrays = [array for op in program.ops for array in op.arrays()]
    weights = sum(counts.binary_params for counts in program.counts())
    assert weights == 40 * 40 * 2 + 10 * 9 * 20
    assert sizes.binary_weights == weights // 8 + 40 // 8  # and the pad of the shifted branch
    assert sizes.real_parameters == 4 * sum(array.size for array in arrays if array.dtype == np.float32)
    assert sizes.indices == 4 * 4
    assert sizes.test_logits == 2 * 3 * 4
    text = json.dumps(PROVENANCE, separators=(",", ":"), ensure_ascii=False).encode()
    assert sizes.provenance == len(zlib.compress(text, 9))
    assert sizes.header < 2500 + sizes.provenance


def test_size_of_the_papers_network_is_what_the_paper_counts(tmp_path):
    import torch

    from bcnn.lowering.lower import lower
    from bcnn.nets.bcnn import Network

    torch.set_num_threads(1)
    config = preset("imagenet")
    program = lower(Network(config).eval(), samples.MEAN, samples.STD)
    sizes = packfile.save(program, tmp_path / "m.bcnn", test_seeds=())
    folded = sum(block.channels for block in config.plan())  # scales of the depth wise batch norms, now in the weights
    normalisation = 9  # scale, offset and intensity, three each
    assert sizes.binary_weights == 9_042_944 // 8
    assert sizes.real_parameters == 4 * (1_148_168 - folded + normalisation)
    assert sizes.test_logits == 0
    assert sizes.header < 8000
    assert sizes.total == (tmp_path / "m.bcnn").stat().st_size


def test_what_has_its_default_is_left_out_of_the_text(tmp_path):
    packfile.save(samples.program(ops.MaxPool(0, ops.Window()), ops.GlobalAvgPool(1)), tmp_path / "m.bcnn")
    text = json.loads(zlib.decompress(safetensors.numpy.load_file(tmp_path / "m.bcnn")["program"]))
    assert text["ops"] == [["Input", 4, 4, 3, 3], ["MaxPool", 0, []], ["GlobalAvgPool", 1]]


def test_everyones_tools_can_read_the_file(model):
    tensors = safetensors.numpy.load_file(model)
    packed = packfile.open_packed(model)
    assert set(tensors) == {"f32", "i32", "bits", "test", "program", "provenance", "hashes"}
    assert np.array_equal(tensors["f32"][:3], packed.program.ops[0].scale)
    assert np.array_equal(tensors["i32"], [3, 0, 19, 14])
    with safe_open(model, "np") as file:
        assert file.metadata() == {"format": packfile.FORMAT}


def test_test_vectors_hold_the_interpreters_logits(model):
    packed = packfile.open_packed(model)
    assert packed.test_seeds == (0, 1)
    for seed, logits in zip(packed.test_seeds, packed.test_logits, strict=True):
        assert np.array_equal(interpret(packed.program, packfile.vector_image(seed, 8, 8)), logits)


def test_image_of_a_test_vector_is_fixed_by_the_format():
    # A change here makes every packed file's test vectors wrong: it needs a new format number.
    assert packfile.vector_image(0, 2, 2).reshape(-1).tolist() == VECTOR_0
    assert packfile.vector_image(1, 2, 2).reshape(-1).tolist() == VECTOR_1
    many = packfile.vector_image(0, 64, 64)
    assert len(np.unique(many)) == 256


VECTOR_0 = [0, 156, 95, 7, 190, 143, 163, 152, 236, 235, 70, 51]
VECTOR_1 = [254, 91, 103, 241, 196, 56, 135, 217, 66, 22, 27, 87]


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("labels", {"labels": ("a", "b", "\x1b[31m")}),
        ("names", {"names": None}),
        ("provenance", {"provenance": {"x": {1, 2}}}),
        ("provenance", {"provenance": {"x": float("nan")}}),
        ("provenance", {"provenance": {"x": "\ud800"}}),
        ("provenance", {"provenance": {"x": "y" * (1 << 23)}}),
    ],
)
def test_what_cannot_be_stored_is_an_error(program, tmp_path, what, change):
    if change.get("names", ()) is None:
        change = {"names": ("\n", *program.names[1:])}
    fields = {"labels": program.labels, "names": program.names, "provenance": program.provenance, **change}
    with pytest.raises(UserError, match=what):
        packfile.save(Program(program.ops, crop=1.0, **fields), tmp_path / "m.bcnn")
    assert not list(tmp_path.iterdir())


# --- writing ----------------------------------------------------------------------------------------------------------


def test_full_disk_keeps_the_old_file_and_leaves_nothing_behind(program, model, monkeypatch):
    before = model.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device; what was there is unchanged"):
        packfile.save(program, model)
    assert model.read_bytes() == before
    assert [file.name for file in model.parent.iterdir()] == ["model.bcnn"]


def test_process_killed_while_writing_keeps_the_old_file(model):
    before = model.read_bytes()
    script = textwrap.dedent("""
        import os, signal, sys
        from bcnn.base import files
        from bcnn.packed import packfile
        files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        packfile.save(packfile.read(sys.argv[1]), sys.argv[1])
    """)
    done = subprocess.run([sys.executable, "-c", script, str(model)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert model.read_bytes() == before


def test_folder_that_does_not_exist_is_an_error(program, tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*No such file or directory"):
        packfile.save(program, tmp_path / "nowhere" / "m.bcnn")


def test_new_file_has_the_usual_permissions(model):
    mask = os.umask(0)
    os.umask(mask)
    assert model.stat().st_mode & 0o777 == 0o666 & ~mask


# --- opening ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stream", "op"), [("bits", 3), ("f32", 17), ("i32", 8)])
def test_one_flipped_bit_is_found_by_the_hash_of_its_op(model, stream, op):
    raw = bytearray(model.read_bytes())
    length = int.from_bytes(raw[:8], "little")
    end = json.loads(raw[8 : 8 + length])[stream]["data_offsets"][1]
    raw[8 + length + end - 1] ^= 1
    model.write_bytes(raw)
    with pytest.raises(UserError, match=rf"model.bcnn: op {op} \(layer{op + 1}\.\w+\) does not match its hash"):
        packfile.read(model)


@pytest.mark.parametrize("tensor", ["test", "program", "provenance", "hashes"])
def test_one_flipped_bit_outside_of_the_parameters_is_found(model, tensor):
    raw = bytearray(model.read_bytes())
    length = int.from_bytes(raw[:8], "little")
    end = json.loads(raw[8 : 8 + length])[tensor]["data_offsets"][1]
    raw[8 + length + end - 1] ^= 1
    model.write_bytes(raw)
    named = "provenance" if tensor == "hashes" else tensor  # the last hash is that of the provenance
    with pytest.raises(UserError, match=rf"model.bcnn: tensor '{named}' does not match its hash"):
        packfile.read(model)


def test_arrays_of_a_read_program_are_aligned_and_our_own(model):
    for op in packfile.read(model).ops:
        for array in op.arrays():
            assert array.flags.carray


@pytest.mark.parametrize(("path", "words"), [("missing.bcnn", "No such file"), (".", "is a folder")])
def test_paths_that_are_not_files(tmp_path, path, words):
    with pytest.raises(UserError, match=words):
        packfile.read(tmp_path / path)


def test_a_safetensors_file_of_another_kind_says_how_to_make_one_of_ours(tmp_path):
    safetensors.numpy.save_file({"w": np.zeros(4, np.float32)}, tmp_path / "w.safetensors", {"made": "elsewhere"})
    with pytest.raises(UserError, match="not a packed program; make one with `bcnn pack`"):
        packfile.read(tmp_path / "w.safetensors")


@pytest.mark.parametrize("other", ["1", "3", "two"])
def test_another_format_says_what_to_do(tmp_path, program, monkeypatch, other):
    monkeypatch.setattr(packfile, "FORMAT", other)
    packfile.save(program, tmp_path / "m.bcnn")
    monkeypatch.undo()
    with pytest.raises(
        UserError, match=f"format '{other}', this build reads 2; pack the checkpoint again with `bcnn pack`"
    ):
        packfile.read(tmp_path / "m.bcnn")


def test_a_program_that_costs_too_much_is_refused_unless_the_limits_are_raised(tmp_path, monkeypatch):
    pools = [ops.MaxPool(index, ops.Window()) for index in range(300)]
    few = Limits(ops=100)
    packfile.save(samples.program(*pools), tmp_path / "m.bcnn", test_seeds=())
    assert len(packfile.read(tmp_path / "m.bcnn").ops) == 301
    with pytest.raises(UserError, match=r"301 ops; the limit is 100 .*if you trust the file, set BCNN_LIMITS=off"):
        packfile.read(tmp_path / "m.bcnn", few)
    monkeypatch.setattr(packfile, "Limits", lambda: few)
    with pytest.raises(UserError, match="the limit is 100"):
        packfile.read(tmp_path / "m.bcnn")
    monkeypatch.setenv("BCNN_LIMITS", "off")
    assert len(packfile.read(tmp_path / "m.bcnn").ops) == 301
    monkeypatch.setenv("BCNN_LIMITS", "none")
    with pytest.raises(UserError, match="BCNN_LIMITS is 'none', not on or off"):
        packfile.read(tmp_path / "m.bcnn")


def test_reading_needs_no_torch(model):
    script = (
        "import sys; from bcnn.packed import packfile; packfile.read(sys.argv[1]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(model)], check=True)
