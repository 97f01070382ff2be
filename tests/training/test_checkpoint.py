import errno
import json
import os
import resource
import subprocess
import sys
from dataclasses import replace

import programs
import pytest
import safetensors.torch
import tiny_runs
import torch

from bcnn.base import files
from bcnn.base.errors import UserError
from bcnn.nets.bcnn import Network
from bcnn.packed import packfile
from bcnn.packed.container import format_of
from bcnn.training import checkpoint
from bcnn.training.checkpoint import Checkpoint, Meta

META = Meta((0.1, 0.2, 0.3), (0.5, 0.6, 0.7), tuple("0123456789"), 0.875, {"recipe": "tiny"})


def made(weights="binary"):
    torch.manual_seed(0)
    network = Network(tiny_runs.NETWORK, weights)
    for _ in range(3):
        network(torch.randn(16, 3, 8, 8))  # so that batch norm has statistics
    return network


def test_checkpoint_comes_back_equal(tmp_path):
    network = made()
    path = tmp_path / "a.safetensors"
    state = {f"{n}/exp_avg": torch.randn(p.shape) for n, p in network.named_parameters()}
    checkpoint.save(
        path, Checkpoint(tiny_runs.NETWORK, "real", network.state_dict(), META, state, {"step": 1, "best": 0.1})
    )
    back = checkpoint.read(path)
    assert (back.network, back.weights, back.meta, back.progress) == (
        tiny_runs.NETWORK,
        "real",
        META,
        {"step": 1, "best": 0.1},
    )
    assert back.state.keys() == network.state_dict().keys()
    assert all(torch.equal(back.state[k], v) for k, v in network.state_dict().items())
    assert all(torch.equal(back.optimizer[k], v) for k, v in state.items())


def test_load_gives_the_network_in_eval_mode_and_its_meta(tmp_path):
    network = made().eval()
    checkpoint.save(tmp_path / "last.safetensors", Checkpoint(tiny_runs.NETWORK, "binary", network.state_dict(), META))
    x = torch.randn(4, 3, 8, 8)
    for path in (tmp_path, tmp_path / "last.safetensors"):
        loaded, meta = checkpoint.load(path)
        assert meta == META
        assert not loaded.training
        assert torch.equal(loaded(x), network(x))
    assert format_of(tmp_path / "last.safetensors").startswith("bcnn-checkpoint")


def test_scaled_weights_are_folded_into_batch_norm_by_load(tmp_path):
    network = made("scaled").eval()
    with torch.no_grad():
        next(m for m in network.modules() if hasattr(m, "fold_scale") and hasattr(m, "norm")).weight[2] = 0  # scale 0
    checkpoint.save(tmp_path / "a.safetensors", Checkpoint(tiny_runs.NETWORK, "scaled", network.state_dict(), META))
    loaded, _ = checkpoint.load(tmp_path / "a.safetensors")
    assert loaded.weights == "binary"
    signs = torch.randn(2, 8, 4, 4).sign()
    for (name, old), new in zip(network.named_modules(), loaded.modules(), strict=True):
        if type(old).__name__ == "Branch" and old.weight.shape[0] == 8:
            # Module by module, since rounding flips signs further on; float32, two orders of operations.
            torch.testing.assert_close(old(signs), new(signs), rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_damaged_file_is_one_sentence(tmp_path, cut):
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, Checkpoint(tiny_runs.NETWORK, "binary", made().state_dict(), META))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UserError, match="not a complete safetensors file"):
        checkpoint.read(path)


def flip(path, at):
    """One bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_one_wrong_bit_in_any_tensor_is_noticed_and_the_tensor_named(tmp_path):
    path = tmp_path / "a.safetensors"
    optimizer = {"decoder.linear.bias/exp_avg": torch.ones(10)}
    checkpoint.save(path, Checkpoint(tiny_runs.NETWORK, "binary", made().state_dict(), META, optimizer))
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for name, entry in json.loads(whole[8:start]).items():
        if name == "__metadata__":
            continue
        flip(path, start + entry["data_offsets"][0])
        with pytest.raises(UserError, match=f"tensor '{name}' does not match its hash"):
            checkpoint.read(path)
        path.write_bytes(whole)
    assert checkpoint.read(path).optimizer


@pytest.mark.parametrize("text", [rb"\"updates\": 7", b"0.875", b'"binary', rb"\"tiny"])
def test_one_wrong_digit_or_letter_in_the_header_is_noticed(tmp_path, text):
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, Checkpoint(tiny_runs.NETWORK, "binary", made().state_dict(), META, progress={"updates": 7}))
    flip(path, path.read_bytes().index(text) + len(text) - 1)  # 7 becomes 6, y becomes x
    with pytest.raises(UserError, match="damaged header: it does not match its hash"):
        checkpoint.read(path)


def test_a_checkpoint_from_before_there_were_hashes_is_still_read(tmp_path):
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, Checkpoint(tiny_runs.NETWORK, "binary", made().state_dict(), META))
    with safetensors.safe_open(str(path), "pt") as file:
        header = {key: value for key, value in file.metadata().items() if key not in ("hash", "hashes")}
    header["format"] = checkpoint.UNHASHED_FORMAT
    safetensors.torch.save_file(made().state_dict(), path, header)
    assert checkpoint.read(path).meta == META


def test_the_generation_before_is_named_where_a_checkpoint_is_damaged(tmp_path):
    path = tmp_path / "last.safetensors"
    for recipe in ("one", "two"):
        saved = Checkpoint(
            tiny_runs.NETWORK, "binary", made().state_dict(), replace(META, provenance={"recipe": recipe})
        )
        checkpoint.save(path, saved, keep=True)
    before = checkpoint.previous(path)
    assert [checkpoint.read(p).meta.provenance["recipe"] for p in (path, before)] == ["two", "one"]
    flip(path, -1)
    with pytest.raises(UserError, match=f"does not match its hash; the generation before it is {before}"):
        checkpoint.load(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=f"no last.safetensors; the generation before it is {before}"):
        checkpoint.load(tmp_path)


# 68 GB of binary weights; a million modules; sixteen million quantiles: nothing of it may be begun.
HUGE = [
    tiny_runs.NETWORK.replace(stem={"blocks": 1, "stride": 1, "replicate": 23000}),
    tiny_runs.NETWORK.replace(stem={"blocks": 1, "stride": 1, "replicate": 1, "filter": 1001}),
    tiny_runs.NETWORK.replace(branches=1 << 24),
    tiny_runs.NETWORK.replace(stem={"blocks": 1, "stride": 1, "replicate": 1 << 20}),
]


@pytest.mark.parametrize("network", HUGE)
def test_a_small_file_cannot_ask_for_much_memory(tmp_path, network, monkeypatch):
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, Checkpoint(network, "binary", {"x": torch.zeros(1)}, META))
    assert path.stat().st_size < 4000
    monkeypatch.setattr(checkpoint.network_spec, "build", None)  # it is not even begun
    with pytest.raises(UserError, match=r"lacks tensors: its network has .* binary weights, the file 1 values in 1"):
        checkpoint.load(path)


def test_tensors_of_other_shapes_than_the_network_has_are_noticed_before_it_gets_memory(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    state = made().state_dict()
    # Enough values, but in the wrong places: the classes are not what the decoder has.
    checkpoint.save(path, Checkpoint(tiny_runs.NETWORK.replace(classes=1 << 24), "binary", state, META))
    real = checkpoint.network_spec.build
    devices = []

    def build(network):
        devices.append(str(torch.empty(0).device))
        return real(network)

    monkeypatch.setattr(checkpoint.network_spec, "build", build)
    with pytest.raises(UserError, match=r"decoder.linear.weight is \(10, \d+\), this network's is \(16777216, "):
        checkpoint.load(path)
    assert devices == ["meta"]


def test_other_files_are_told_apart(tmp_path):
    path = tmp_path / "other.safetensors"
    safetensors.torch.save_file({"x": torch.zeros(1)}, path)
    assert not format_of(path).startswith("bcnn-checkpoint")
    assert format_of(tmp_path / "nothing") == ""
    with pytest.raises(UserError, match="no checkpoint of this version"):
        checkpoint.read(path)
    with pytest.raises(UserError, match="no checkpoint at"):
        checkpoint.read(tmp_path / "nothing")
    packfile.save(programs.of_config(tiny_runs.NETWORK), tmp_path / "model.bcnn")
    with pytest.raises(UserError, match="is a packed file already"):
        checkpoint.read(tmp_path / "model.bcnn")
    with pytest.raises(UserError, match="not a run folder"):
        checkpoint.read(tmp_path)


def test_header_without_its_parts_is_one_sentence(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.torch.save_file({"x": torch.zeros(1)}, path, {"format": checkpoint.FORMAT, "network": json.dumps({})})
    with pytest.raises(UserError, match="damaged header"):
        checkpoint.read(path)


def forged(path, **changes):
    """A checkpoint with other values in its `meta`, and hashes that are right again."""
    checkpoint.save(path, Checkpoint(tiny_runs.NETWORK, "binary", made().state_dict(), META))
    with safetensors.safe_open(path, "pt") as file:
        header, tensors = dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header["meta"] = json.dumps({**json.loads(header["meta"]), **changes})
    header["hash"] = checkpoint.header_hash(header)
    safetensors.torch.save_file(tensors, path, header)


@pytest.mark.parametrize(
    "change",
    [{"crop": 1e-300}, {"crop": 5e-4}, {"crop": float("nan")}, {"crop": 2}, {"mean": [0.5, 0.5, 10**400]},
     {"std": [0.5, 0.0, 0.5]}, {"std": [0.5, float("inf"), 0.5]}, {"mean": [0.5]}],
)  # fmt: skip
def test_what_no_image_can_be_prepared_with_is_one_sentence(tmp_path, change):
    forged(tmp_path / "a.safetensors", **change)
    with pytest.raises(UserError, match="damaged header"):
        checkpoint.read(tmp_path / "a.safetensors")


@pytest.mark.parametrize("dtype", ["I6\x7f", "I" * 100_000, "\x1b[2J"])
def test_what_safetensors_quotes_from_a_damaged_file_is_printable_and_short(tmp_path, dtype):
    header = json.dumps({"x": {"dtype": dtype, "shape": [1], "data_offsets": [0, 4]}}, ensure_ascii=False).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(UserError, match="is not a complete safetensors file") as error:
        checkpoint.read(tmp_path / "a.safetensors")
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600


def test_another_format_of_any_length_is_one_short_sentence(tmp_path):
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "a.safetensors", {"format": "x" * 100_000})
    with pytest.raises(UserError, match="is no checkpoint of this version") as error:
        checkpoint.read(tmp_path / "a.safetensors")
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_full_disk_keeps_the_checkpoint_before(tmp_path, monkeypatch, failing):
    path = tmp_path / "a.safetensors"
    files.write_atomic(path, b"before")

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, failing, full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomic(path, b"after" * 1000)
    monkeypatch.undo()
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_write_that_hits_a_real_file_size_limit_keeps_the_checkpoint_before(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"before")
    script = (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"  # so that the write fails, not the process
        "from bcnn.base.files import write_atomic; from pathlib import Path\n"
        f"write_atomic(Path({str(path)!r}), bytes(1 << 20))"
    )
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))  # noqa: E731
    done = subprocess.run([sys.executable, "-c", script], preexec_fn=limit, capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a.safetensors"]
