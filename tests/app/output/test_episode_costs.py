"""The worst episode is the one that costs most."""

from __future__ import annotations

import pytest

from perftop.draw.theme import EPISODES
from perftop.output.episode_costs import cost, grouped
from perftop.samples.episode import KINDS, Episode

LOW = {"ceiling_hz": 3.5e9}


def episode(kind: str, cause: str, cpus: list[int], depth: float | None) -> Episode:
    evidence = dict(LOW) if kind in {"turbo-drop", "license"} else {}
    return Episode(kind, cpus, 1, None, depth, cause, evidence)


def test_a_loss_counts_once_for_each_cpu() -> None:
    drop = episode("turbo-drop", "power-pl1", [0, 1], 0.35e9)
    assert cost([drop]) == pytest.approx(0.2)
    steal, loss = (
        episode("steal", "hypervisor", [0], 0.2),
        episode("neighbour", "hypervisor", [0, 1], 0.3),
    )
    assert cost([steal, loss]) == pytest.approx(0.6)
    assert (
        cost([episode("throttle", "thermal", [0], None), episode("smi", "firmware", [0], 9)]) == 0
    )


def test_the_costliest_group_comes_first() -> None:
    drop = episode("turbo-drop", "power-pl1", [*range(8)], 0.62e9)
    slight = episode("turbo-drop", "thermal", [9], 0.2e9)
    losses = [episode("neighbour", "sibling", [cpu], 0.4) for cpu in (0, 1)]
    ramp = episode("ramp", "-", [3], 2e9)
    order = [[e.cause for e in alike] for alike in grouped([ramp, slight, *losses, drop])]
    assert order == [["power-pl1"], ["sibling", "sibling"], ["thermal"], ["-"]]


def test_what_the_hypervisor_takes_is_one_thing() -> None:
    steal = episode("steal", "hypervisor", [0], 0.2)
    loss = episode("neighbour", "hypervisor", [0], 0.3)
    assert grouped([steal, loss]) == [[loss, steal]]


def test_every_kind_has_a_sign() -> None:
    assert tuple(EPISODES) == KINDS
