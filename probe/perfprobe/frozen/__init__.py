"""Values that do not change once they are made, declared as dataclasses are.

`dataclass(frozen=True, slots=True)` compiles six methods for each class, half a millisecond, and a
probe and an app that start declare a hundred. Here only `__init__` is compiled. That nothing is
assigned later is for the type checker to see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A dataclass with slots; equal where class and values are, as its hash."""
    made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
    made.__values__ = attrgetter(*made.__match_args__)
    made.__eq__, made.__hash__, made.__repr__ = _equal, _hash, _shown
    found: type[T] = made
    return found


def _equal(self: Any, other: Any) -> Any:
    return (
        self.__values__(self) == self.__values__(other)
        if type(self) is type(other)
        else NotImplemented
    )


def _hash(self: Any) -> int:
    return hash(self.__values__(self))


def _shown(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({values})"
