"""The stored counts and audits of other papers' networks are what a recorded pass gives now."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from counts_by_hand import IMAGENET

from bcnn.counting.rivals import FILE, Rival, from_plain, rivals, to_plain

# The others take minutes: `python -m tools.pages.count_rivals --check` compares them all.
SHORT = ("bnn-r18", "birealnet-18", "mobilenet-v1", "reactnet-a")
torch.set_num_threads(1)


@pytest.mark.parametrize("name", SHORT)
def test_a_recorded_pass_gives_the_stored_counts(name: str) -> None:
    from tools.pages.count_rivals import counted

    assert counted(name) == rivals()[name], f"run: python -m tools.pages.count_rivals {name}"


def test_every_network_of_224_is_stored() -> None:
    from tools.pages.count_rivals import NAMES

    assert tuple(rivals()) == NAMES, "run: python -m tools.pages.count_rivals"


@pytest.mark.parametrize("name", sorted(IMAGENET))
def test_stored_counts_are_those_made_by_hand(name: str) -> None:
    """Counted by other code, see nets/test_nets_counts: parameters and MACs, layer by layer."""
    by_hand, stored = IMAGENET[name], rivals()[name].counts
    assert stored.binary_params == by_hand.binary
    assert stored.binary_macs == by_hand.binary_macs
    assert stored.real_params == by_hand.real + 2 * by_hand.norm_channels + by_hand.other
    assert stored.real_macs == by_hand.real_macs + by_hand.classifier_inputs * 1000


def test_a_rival_survives_being_written_as_plain_data() -> None:
    for name, rival in rivals().items():
        assert from_plain(name, json.loads(json.dumps(to_plain(rival)))) == rival
    assert FILE.stat().st_size < 40_000


def test_no_peer_passes_the_audit_and_each_says_where() -> None:
    def real(rival: Rival) -> list[str]:
        return [module for p in rival.products if p.bits[0] > 2 for module in p.modules]

    for name, rival in rivals().items():
        assert real(rival), name
        assert sum(p.macs for p in rival.products) > 0
    assert real(rivals()["reactnet-a"]) == real(rivals()["bnn-r18"]) == ["stem.0"]


def test_the_tables_need_no_torch() -> None:
    code = "import sys; from bcnn.counting.tables import tables; tables(); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
