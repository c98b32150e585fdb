"""Values that do not change once they are made."""

from __future__ import annotations

from dataclasses import field, replace

import pytest

from perfprobe.frozen import frozen


@frozen
class Point:
    x: int
    y: list[int] = field(default_factory=list)


@frozen
class Other:
    x: int
    y: list[int] = field(default_factory=list)


@frozen
class Known(Point):
    name: str = ""
    seen: set[int] = field(default_factory=set, init=False)


def test_values_are_equal_by_class_and_what_they_are_made_of() -> None:
    assert Point(1) == Point(1, [])
    assert Point(1) != Point(1, [2])
    others: list[object] = [Other(1), (1, [])]
    assert Point(1) not in others
    known = Known(1, [2], "a")
    known.seen.add(3)  # no part of what it is made of
    assert known == Known(1, [2], "a") != Known(1, [2], "b")
    assert replace(known, name="b") == Known(1, [2], "b")


def test_the_hash_is_that_of_the_values() -> None:
    assert len({Known(1, (2,), "a"), Known(1, (2,), "a"), Known(1, (2,), "b")}) == 2  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="list"):
        hash(Point(1))


def test_a_value_is_shown_with_its_names_and_has_no_other() -> None:
    assert repr(Known(1, [2], "a")) == "Known(x=1, y=[2], name='a')"
    with pytest.raises(AttributeError):
        Point(1).z = 1  # type: ignore[attr-defined]
