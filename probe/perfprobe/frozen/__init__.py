"""Values that do not change once they are made, declared by their fields as dataclasses are.

A probe and an app that start declare some hundred classes, and make values of half of them. For
each, `dataclasses` compiles six methods, half a millisecond; importing it, with `inspect`, takes
6 ms and 1.4 MB. Here `__init__` is compiled when the first value is made, and the other methods are
the same for all. That nothing is assigned later is for the type checker to see.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

T = TypeVar("T")
_NONE: Any = object()


class Field:
    """One field: what it is if nothing is given, and how it may be given."""

    __slots__ = ("by_name", "default", "factory", "init")

    def __init__(self, default: Any, factory: Any, *, init: bool) -> None:
        self.default, self.factory, self.init = default, factory, init
        self.by_name = False

    @property
    def required(self) -> bool:
        return self.default is _NONE and self.factory is _NONE


if TYPE_CHECKING:  # there the type checker knows the names and types that may be given
    from dataclasses import asdict as asdict
    from dataclasses import field as field
    from dataclasses import replace as replace
else:

    def field(*, default: Any = _NONE, default_factory: Any = _NONE, init: bool = True) -> Any:
        """A field with a default; `default_factory` makes one for each value. Without `init` none
        can be given."""
        return Field(default, default_factory, init=init)

    def replace(value: T, /, **changes: Any) -> T:
        """A value as this one but for some fields."""
        known = {name: getattr(value, name) for name in value.__match_args__}
        return type(value)(**known | changes)

    def asdict(value: Any) -> Any:
        """The fields as a dict; so are values in it, in lists and in dicts."""
        if hasattr(type(value), "__dataclass_fields__"):
            made: Any = type(value)
            names = fields(made) if is_declared(made) else made.__dataclass_fields__
            return {name: asdict(getattr(value, name)) for name in names}
        if isinstance(value, dict):
            return {key: asdict(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(asdict(item) for item in value)
        return value


def fields(cls: type[Any]) -> dict[str, Field]:
    """The fields of a declared class by name, in the order in which they are given."""
    found: dict[str, Field] = cls.__declared__
    return found


def is_declared(cls: Any) -> bool:
    return hasattr(cls, "__declared__")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A class with slots whose values are equal where class and fields are, as their hashes."""
    made: Any = _declared(cls)
    made.__values__ = attrgetter(*made.__match_args__)
    made.__eq__, made.__hash__, made.__repr__ = _equal, _hash, _shown
    found: type[T] = made
    return found


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def slotted(cls: type[T]) -> type[T]:
    """A class with slots whose fields may be assigned; each value is equal to itself only."""
    made: type[T] = _declared(cls)
    return made


def _declared(cls: Any) -> Any:
    """The class anew, with slots and an `__init__`."""
    own = _own_fields(cls)
    declared = {**(fields(cls) if is_declared(cls) else {}), **own}
    body = {key: value for key, value in vars(cls).items() if key not in own}
    for made_anew in ("__dict__", "__weakref__"):
        body.pop(made_anew, None)
    given = [name for name, one in declared.items() if one.init]
    body |= {
        "__slots__": tuple(own),
        "__match_args__": tuple(given),
        "__declared__": declared,
        "__dataclass_fields__": _ForDataclasses(),
    }
    made: Any = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__

    def __init__(self: Any, *values: Any, **named: Any) -> None:  # noqa: N807
        made.__init__ = _compiled(made)
        made.__init__(self, *values, **named)

    made.__init__ = __init__
    return made


def _own_fields(cls: Any) -> dict[str, Field]:
    """What the class itself declares. Fields after one of type KW_ONLY are given by name."""
    found: dict[str, Field] = {}
    by_name = False
    for name, hint in vars(cls).get("__annotations__", {}).items():
        if hint == "KW_ONLY":
            by_name = True
        elif not hint.startswith("ClassVar"):
            default = vars(cls).get(name, _NONE)
            one = default if isinstance(default, Field) else Field(default, _NONE, init=True)
            if type(default).__module__ == "dataclasses":
                raise TypeError(f"{cls.__name__}.{name}: its field is of dataclasses, not of here")
            one.by_name = by_name
            found[name] = one
    return found


def _compiled(cls: Any) -> Callable[..., None]:
    """The `__init__` that assigns the fields."""
    known: dict[str, Any] = {"NONE": _NONE}
    places: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    for name, one in fields(cls).items():
        known |= {f"d_{name}": one.default, f"f_{name}": one.factory}
        fresh = f"d_{name}" if one.factory is _NONE else f"f_{name}()"
        if not one.init:
            lines += [] if one.required else [f" self.{name} = {fresh}"]
            continue
        (named if one.by_name else places).append(name if one.required else f"{name}=d_{name}")
        made_now = "" if one.factory is _NONE else f"{fresh} if {name} is NONE else "
        lines.append(f" self.{name} = {made_now}{name}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    given = ", ".join(["self", *places, *(["*", *named] if named else [])])
    exec(f"def __init__({given}):\n" + "\n".join(lines or [" pass"]), known)  # noqa: S102
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


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


class _ForDataclasses:
    """The fields as the functions of `dataclasses` want them, made when one of them asks."""

    def __get__(self, _: object, cls: Any) -> Any:
        import dataclasses

        told = fields(cls).items()
        parts = [(name, Any, dataclasses.field(init=one.init)) for name, one in told]
        made: Any = dataclasses.make_dataclass(cls.__name__, parts)
        cls.__dataclass_fields__ = made.__dataclass_fields__
        return cls.__dataclass_fields__
