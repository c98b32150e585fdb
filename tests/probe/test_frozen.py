"""Values that do not change once they are made."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY
from typing import Any, ClassVar

import pytest

from perfprobe.frozen import asdict, field, frozen, replace, slotted


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


@frozen
class Named:
    kind: ClassVar[str] = "a kind"
    key: str
    _: KW_ONLY
    title: str = ""
    order: int


@frozen
class Ranked(Named):
    rank: int
    words: str = field(init=False, default="none")

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", f"{self.key} {self.rank}")


def test_fields_of_a_subclass_come_after_those_given_by_place() -> None:
    for _ in range(2):  # the first compiles
        made = Ranked("a", 3, order=1)
        assert (made.key, made.rank, made.title, made.order, made.words) == ("a", 3, "", 1, "a 3")
        assert Ranked.kind == "a kind"
        with pytest.raises(TypeError, match=r"Ranked.__init__\(\) takes 3 positional arguments"):
            Ranked("a", 3, "title", order=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="required keyword-only argument: 'order'"):
            Ranked("a", 3)  # type: ignore[call-arg]
    assert replace(made, title="b") == Ranked("a", 3, title="b", order=1) != made
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        replace(made, colour="red")  # type: ignore[call-arg]


def test_a_class_of_a_base_that_made_values_has_its_own_fields() -> None:
    assert Point(2, [3]).y == [3]
    assert Known(1, [2], "a").name == "a"
    assert Point(2).y is not Point(2).y


@slotted
class Counted:
    name: str
    seen: list[Point] = field(default_factory=list)
    by_name: dict[str, tuple[Point, ...]] = field(default_factory=dict)


def test_a_slotted_value_changes_and_is_itself_only() -> None:
    counted = Counted("a")
    counted.name = "b"
    assert counted.name == "b"
    assert counted != Counted("b")
    with pytest.raises(AttributeError):
        counted.other = 1  # type: ignore[attr-defined]


def test_values_inside_become_dicts_too() -> None:
    counted = Counted("a", [Point(1, [2])], {"b": (Point(3),)})
    told: dict[str, Any] = {"name": "a", "seen": [{"x": 1, "y": [2]}]}
    assert asdict(counted) == told | {"by_name": {"b": ({"x": 3, "y": []},)}}
    assert asdict(counted)["seen"][0]["y"] is not counted.seen[0].y


def test_the_functions_of_dataclasses_know_them() -> None:
    assert dataclasses.replace(Known(1, [2], "a"), x=3) == Known(3, [2], "a")
    assert dataclasses.replace(Ranked("a", 3, order=1), title="b").title == "b"
    assert dataclasses.asdict(Point(1, [2])) == {"x": 1, "y": [2]}
    assert [one.name for one in dataclasses.fields(Known)] == ["x", "y", "name", "seen"]


def test_a_field_of_dataclasses_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong.x: its field is of dataclasses"):

        @frozen
        class Wrong:
            x: int = dataclasses.field(default=1)
