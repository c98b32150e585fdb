"""Lines of the page for Prometheus. Most series keep their labels, so all but their values is made
once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Floats
from perftop.output.exposition import Heading, labels

Labels = Mapping[str, object]


class Family(NamedTuple):
    heading: Heading
    lines: str
    series: int
    """Number of the lines."""


class _Form(NamedTuple):
    places: Sequence[Labels]
    known: bytes
    """Which values there are."""
    text: str
    """Text of all lines, with a place for each value."""


class Grids:
    """Families with a series for each place and name."""

    def __init__(self) -> None:
        self._forms: dict[str, _Form] = {}
        """The form that each family had last, by its name."""

    def family(
        self, heading: Heading, places: Sequence[Labels], values: Floats, label: str = "",
        names: Sequence[str] = ("",),
    ) -> Family:  # fmt: skip
        """`places`: another object once they change; `values`: (names, places), NaN for what is not
        known."""
        flat = values.ravel()
        known = np.isfinite(flat)
        form = self._forms.get(heading.name)
        if form is None or form.places is not places or form.known != known.tobytes():
            more = [{label: name} if label else {} for name in names]
            begins = [begin(heading, **place, **one) for one in more for place in places]
            told = zip(begins, known.tolist(), strict=True)
            text = "".join(f"{line.replace('%', '%%')}%.15g\n" for line, there in told if there)
            form = self._forms[heading.name] = _Form(places, known.tobytes(), text)
        return Family(heading, form.text % tuple(flat[known].tolist()), int(known.sum()))


def begin(heading: Heading, **of: object) -> str:
    """A line up to its value."""
    return f"{heading.sample}{labels(**of)} "


def single(heading: Heading, value: float, **of: object) -> Family:
    """A family of one series; of none if its value is not known."""
    return several(heading, [(of, value)] if math.isfinite(value) else [])


def several(heading: Heading, found: Iterable[tuple[Labels, float]]) -> Family:
    """A family whose series come and stay."""
    lines = [f"{begin(heading, **of)}{value:.15g}\n" for of, value in found]
    return Family(heading, "".join(lines), len(lines))
