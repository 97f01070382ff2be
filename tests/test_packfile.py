"""Programs survive a round trip bit for bit, files have the promised size to the byte, and a write happens whole or not at all."""

import dataclasses
import errno
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

import samples
from bcnn import files
from bcnn.deploy import packfile
from bcnn.errors import UserError
from bcnn.nets.config import preset
from bcnn.program import program as p
from bcnn.program.interpret import interpret
from bcnn.program.lower import lower

LABELS = ("cat", "dög", "鳥")


@pytest.fixture(scope="module")
def program():
    return lower(samples.network(), samples.MEAN, samples.STD, LABELS, 0.875, {"accuracy": 0.5, "config": {"P": [1]}})


@pytest.fixture
def model(program, tmp_path):
    packfile.save(program, tmp_path / "model.bcnn")
    return tmp_path / "model.bcnn"


def assert_same(one, other):
    """Two ops or branches are equal in every field."""
    assert type(one) is type(other)
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes(), field.name
        elif field.name == "branches":
            for x, y in zip(a, b, strict=True):
                assert_same(x, y)
        else:
            assert a == b, field.name


CONFIGS = {
    "tiny": samples.TINY,
    "P=2, PReLU in the module": samples.TINY.replace(branches=2, prelu="module", intensity=False),
    "shifts, R below one": samples.TINY.replace(levels=[{"filter": 3}, {"replicate": 0.4, "stride": 1}]),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_round_trip_keeps_every_bit(config, tmp_path):
    program = lower(samples.network(config), samples.MEAN, samples.STD, LABELS, 0.9, {"a": [1, None, "x"]})
    packfile.save(program, tmp_path / "m.bcnn")
    again = packfile.read(tmp_path / "m.bcnn")
    for one, other in zip(program.ops, again.ops, strict=True):
        assert_same(one, other)
    for what in ("names", "labels", "crop", "provenance", "shapes"):
        assert getattr(again, what) == getattr(program, what)
    image = samples.image(8, 8)
    assert np.array_equal(interpret(program, image), interpret(again, image))


@pytest.mark.parametrize("k", [1, 31, 33, 65])
def test_round_trip_of_channel_counts_that_do_not_fill_words(k, tmp_path):
    rng = np.random.default_rng(k)
    op = p.BinaryConv(0, (samples.branch(rng, max(3, k), 5, (1, -1)),), identity=False)
    packfile.save(samples.program(op), tmp_path / "m.bcnn")
    assert_same(packfile.read(tmp_path / "m.bcnn").ops[1], op)


def test_the_same_program_gives_the_same_file(program, tmp_path, model):
    packfile.save(packfile.read(model), tmp_path / "again.bcnn")
    assert (tmp_path / "again.bcnn").read_bytes() == model.read_bytes()


def test_size_is_bits_and_real_parameters_and_header_to_the_byte(program, model):
    sizes = packfile.open_packed(model).sizes
    raw = model.read_bytes()
    assert sizes.total == len(raw)
    assert sizes.header == 8 + int.from_bytes(raw[:8], "little")
    counts = [packfile.parameters(op) for op in program.ops]
    assert sum(binary for binary, _ in counts) == p.binary_weights(program)
    assert sizes.binary_weights == sum(
        -(-b.scale.size * b.threshold.size // 8) for op in program.ops for b in getattr(op, "branches", ())
    )
    assert sizes.real_parameters == 4 * sum(real for _, real in counts)
    assert sizes.test_logits == 2 * 3 * 4


def test_size_of_the_papers_network_is_what_the_paper_counts(tmp_path):
    from bcnn.nets.bcnn import Network

    config = preset("imagenet")
    program = lower(Network(config), samples.MEAN, samples.STD)
    sizes = packfile.save(program, tmp_path / "m.bcnn", test_seeds=())
    folded = sum(block.channels for block in config.plan())  # scales of the depth wise batch norms, now in the weights
    normalisation = 9  # scale, offset and intensity, three each
    assert sizes.binary_weights == 9_042_944 // 8
    assert sizes.real_parameters == 4 * (1_148_168 - folded + normalisation)
    assert sizes.test_logits == 0
    assert sizes.total == (tmp_path / "m.bcnn").stat().st_size


def test_everyones_tools_can_read_the_file(model):
    tensors = safetensors.numpy.load_file(model)
    packed = packfile.open_packed(model)
    assert set(tensors) == set(packed.hashes)
    assert np.array_equal(tensors["1.branches.0.threshold"], packed.program.ops[1].branches[0].threshold)
    with safe_open(model, "np") as file:
        assert file.metadata()["format"] == packfile.FORMAT


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
    ],
)
def test_what_cannot_be_stored_is_an_error(program, tmp_path, what, change):
    if change.get("names", ()) is None:
        change = {"names": ("\n", *program.names[1:])}
    fields = {"labels": program.labels, "names": program.names, "provenance": program.provenance, **change}
    with pytest.raises(UserError, match=what):
        packfile.save(p.Program(program.ops, crop=1.0, **fields), tmp_path / "m.bcnn")
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
        from bcnn import files
        from bcnn.deploy import packfile
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


def test_one_flipped_weight_bit_is_found_by_the_hash(model):
    raw = bytearray(model.read_bytes())
    raw[-1] ^= 1  # bits are stored last
    model.write_bytes(raw)
    with pytest.raises(UserError, match=r"model.bcnn: tensor '.*weight' does not match its hash"):
        packfile.read(model)


def test_arrays_of_a_read_program_are_aligned_and_our_own(model):
    for op in packfile.read(model).ops:
        for part in (op, *getattr(op, "branches", ())):
            for array in vars(part).values():
                assert not isinstance(array, np.ndarray) or array.flags.carray


@pytest.mark.parametrize(("path", "words"), [("missing.bcnn", "No such file"), (".", "is a folder")])
def test_paths_that_are_not_files(tmp_path, path, words):
    with pytest.raises(UserError, match=words):
        packfile.read(tmp_path / path)


def test_a_safetensors_file_of_another_kind_says_how_to_make_one_of_ours(tmp_path):
    safetensors.numpy.save_file({"w": np.zeros(4, np.float32)}, tmp_path / "w.safetensors", {"made": "elsewhere"})
    with pytest.raises(UserError, match="not a packed program; make one with `bcnn pack`"):
        packfile.read(tmp_path / "w.safetensors")


def test_a_future_format_says_what_to_do(tmp_path, program, monkeypatch):
    monkeypatch.setattr(packfile, "FORMAT", "2")
    packfile.save(program, tmp_path / "m.bcnn")
    monkeypatch.setattr(packfile, "FORMAT", "1")
    with pytest.raises(UserError, match="format '2', this build reads 1; pack the checkpoint again"):
        packfile.read(tmp_path / "m.bcnn")


def test_reading_needs_no_torch(model):
    script = (
        "import sys; from bcnn.deploy import packfile; packfile.read(sys.argv[1]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(model)], check=True)
