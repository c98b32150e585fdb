"""The table of kinds and causes is complete, and speaks of numbers that exist."""

from __future__ import annotations

import pytest

from perftop.model.episode import Episode
from perftop.model.kinds import CAUSES, KINDS, MARK, NEIGHBOURS, OTHER, Kind, cause_of, kind_of
from perftop.model.numbers import NUMBERS

ALL = [*KINDS.values(), *NEIGHBOURS.values()]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.key)
def test_a_kind_lowers_and_explains_numbers_that_exist(kind: Kind) -> None:
    assert {kind.lowers} - {""} <= set(NUMBERS)
    assert set(kind.rows) <= set(NUMBERS)
    assert kind.sentences or kind.key == "neighbour"
    assert len(kind.sign) == 1


def test_signs_tell_kinds_apart() -> None:
    assert len({kind.sign for kind in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize(
    ("kind", "cause", "found"),
    [
        ("turbo-drop", "power-pl1", KINDS["turbo-drop"]),
        ("neighbour", "memory", NEIGHBOURS["memory"]),
        ("neighbour", "something new", KINDS["neighbour"]),
        ("mark", "-", MARK),
        ("something new", "unknown", OTHER),
    ],
)
def test_the_kind_of_an_episode(kind: str, cause: str, found: object) -> None:
    assert kind_of(Episode(kind, [0], 0, cause=cause)) is found


def test_an_unknown_cause_keeps_its_key() -> None:
    assert cause_of("thermal") is CAUSES["thermal"]
    assert cause_of("something new").name == "something new"
