"""The worst episode is the one that costs most."""

from __future__ import annotations

import pytest

from perftop.draw.theme import EPISODES
from perftop.model.episode import KINDS, Episode
from perftop.output.sentences import cost, grouped, told_once

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


@pytest.mark.parametrize(("steal", "loss", "told"), [
    ((10, 50), (12, 50), ["loss"]),
    ((10, 50), (30, 50), ["loss"]),  # half of it
    ((10, 50), (31, 60), ["steal", "loss"]),
    ((10, 50), (60, 70), ["steal", "loss"]),
    ((10, None), (20, None), ["loss"]),
    ((10, None), (20, 30), ["steal", "loss"]),
])  # fmt: skip
def test_steal_that_is_a_loss_is_listed_once(
    steal: tuple[int, int | None], loss: tuple[int, int | None], told: list[str]
) -> None:
    seen = {
        "steal": Episode("steal", [0], *steal, 0.2, "hypervisor"),
        "loss": Episode("neighbour", [0, 1], *loss, 0.3, "hypervisor"),
    }
    assert told_once([*seen.values()]) == [seen[name] for name in told]
    elsewhere = Episode("steal", [2], 10, 50, 0.2, "hypervisor")
    assert elsewhere in told_once([elsewhere, seen["loss"]])


def test_every_kind_has_a_sign() -> None:
    assert tuple(EPISODES) == KINDS
