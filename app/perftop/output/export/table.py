"""Intervals as columns of equal length: the same for every format that is a table."""

from __future__ import annotations

from collections.abc import Sequence

from perfprobe import wire
from perftop.output.export.fields import ELAPSED, ONLINE, PLACES, TIME, Field
from perftop.output.export.interval_rows import Look
from perftop.samples.metrics import METRICS
from perftop.session.interval import Interval
from perftop.session.missing import MANY, OFF, UNREAD, why_absent
from perftop.session.session import Session


class Table:
    """What fields say of a session, interval by interval."""

    def __init__(self, session: Session, measures: Sequence[Field]) -> None:
        self._session, self._reasons = session, Reasons(session)
        self.fields = (
            TIME, ELAPSED, *PLACES, ONLINE, *measures,
            Field("suspect", "Why samples were left out.", _suspect, "suspect", "text"),
            Field("why", "Why values are not there.", lambda _: self._told(), "why", "text"),
        )  # fmt: skip

    def columns(self, interval: Interval) -> list[Sequence[object]]:
        """In the order of `fields`, one value for each CPU shown."""
        look = Look(self._session, interval)
        self._missing: list[dict[str, list[str]]] = [{} for _ in look.rows]
        return [self._column(field, look) for field in self.fields]

    def _column(self, field: Field, look: Look) -> Sequence[object]:
        values = field.values(look)
        if field.explained and None in values:
            for place, value in enumerate(values):
                if value is None:
                    reason = " ".join(self._reasons.of(field, look, place).split())
                    self._missing[place].setdefault(reason, []).append(field.name)
        return values

    def _told(self) -> list[object]:
        """Names in front of the reason that they share. The last column: all others are known."""
        return [
            "; ".join(f"{','.join(names)}={reason}" for reason, names in found.items())
            for found in self._missing
        ]


def _suspect(look: Look) -> list[object]:
    return ["; ".join(sorted(look.interval.suspect.get(row, ()))) for row in look.rows]


CEILINGS = "turbo_ceiling"
"""How the keys of all three begin; hello gives one reason for them."""


class Reasons:
    """Those of one stream."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lasting: dict[str, list[wire.Missing]] = {}
        for missing in session.missing():
            self._lasting.setdefault(missing.what, []).append(missing)

    def of(self, field: Field, look: Look, place: int) -> str:
        """`place`: of the CPU among the rows."""
        row = look.rows[place]
        if field.scope == "machine":
            return self._for_good(field.key, None) or UNREAD
        if not look.interval.online[row]:
            return OFF
        cpu = self._session.topology[row].cpu
        if field.key in METRICS and field.kind == "number":
            if self._session.evaluator.serves(field.key, row):
                return why_absent(look.interval, row, field.key)
            return self._unserved(field.key, cpu)
        if field.key in {"smt", "smt_method", "active_threads"}:
            return self._of_states(look, place)
        key = "turbo_ceiling_hz" if field.key.startswith(CEILINGS) else field.key
        for_good = self._for_good(key, cpu)
        if field.kind == "count" and key not in look.interval.counts:
            return for_good or f"no counter {key} on this source"
        return for_good or why_absent(look.interval, row, key)

    def _of_states(self, look: Look, place: int) -> str:
        method = look.methods()[place]
        if method is None:
            return "no core is known that it belongs to"
        if method == "bounds":
            return "only their bounds are known"
        if look.session.splitter.cores[look.cores[place]][2:]:
            return MANY
        return why_absent(look.interval, look.rows[place], "smt")

    def _unserved(self, key: str, cpu: int) -> str:
        """Its own reason, or that of the counters it is made from."""
        needs = [need for variant in METRICS[key].variants for need in variant.needs]
        found = (self._for_good(name, cpu) for name in (key, *needs))
        return next((text for text in found if text), "not counted on this CPU")

    def _for_good(self, key: str, cpu: int | None) -> str | None:
        """What holds for the whole recording."""
        for missing in self._lasting.get(key, ()):
            if missing.cpus is None or cpu in missing.cpus:
                return missing.why
        return None
