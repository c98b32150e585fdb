"""The events that can be chosen on this machine, by PMU and core type, and who counts them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfprobe.cpu import cpu_sets, files
from perfprobe.kernel import access, perf_pmus
from perfprobe.kernel.event_catalogue import (
    CACHE_EVENTS,
    EVENTS,
    HARDWARE_EVENTS,
    SOFTWARE_EVENTS,
    Catalogue,
    Known,
    listed,
    measure,
)
from perfprobe.kernel.perf_pmus import CORES, Pmu

OWN = frozenset({"cycles", "instructions", "ref-cycles"})
"""What the perf source counts for itself, in two rings."""
WATCHDOG = "cycles"


def answer(root: Path, word: str | None, catalogue: Catalogue | None = None) -> dict[str, Any]:
    """The events whose name or description has this word; None: all."""
    catalogue = catalogue or Catalogue(root)
    software = (
        _row(known.name, known.about, known.unit, known.scale, "software", None, [])
        for known in SOFTWARE_EVENTS
    )
    found = [*software, *_hardware(root, catalogue)]
    if word is not None:
        wanted = word.casefold()
        found = [e for e in found if wanted in f"{e['name']} {e['about']}".casefold()]
    pmus = catalogue.cores
    refused = access.perf_refused(root)
    missing = [] if pmus else [access.no_pmu(root)]
    missing += [] if refused is None else [refused]
    return {
        "events": found,
        "pmus": [_pmu(pmu) for pmu in pmus],
        "missing": [{"what": "events", "why": m.why, "fix": m.fix} for m in missing],
    }


def _pmu(pmu: Pmu) -> dict[str, Any]:
    cpus = None if pmu.cpus is None else cpu_sets.format(sorted(pmu.cpus))
    return {"pmu": pmu.name, "type": dict(CORES).get(pmu.name), "cpus": cpus}


def _hardware(root: Path, catalogue: Catalogue) -> Iterator[dict[str, Any]]:
    """The kernel's generic events, then what each core PMU lists, then what perf has."""
    perf = catalogue.of_perf
    dog = files.number(f"{root}/proc/sys/kernel/nmi_watchdog") == 1
    for pmu in catalogue.cores:
        kind = dict(CORES).get(pmu.name)
        generic = {known.name for known in (*HARDWARE_EVENTS, *CACHE_EVENTS)}
        for known in (*HARDWARE_EVENTS, *CACHE_EVENTS):
            yield _row(known.name, known.about, known.unit, 1.0, pmu.name, kind, _open(known, dog))
        for name in listed(pmu):
            if name not in generic and perf_pmus.code(pmu, name) is not None:
                unit, scale = measure(pmu, name)
                about = files.word(f"{pmu.path}/events/{name}")
                yield _row(name, f"{pmu.name}/{about}/", unit, scale, pmu.name, kind, [])
        for name, told in perf.items():
            if named := next((n for n in told if n.pmu == pmu.name), None):
                about = named.about or f"{pmu.name}/{named.terms}/"
                yield _row(name, about, "1", 1.0, pmu.name, kind, [])


def _open(known: Known, dog: bool) -> list[str]:
    """Who counts it now, as far as that can be known."""
    own = ["perftop"] if known.name in OWN else []
    return [*own, *(["NMI watchdog"] if dog and known.name == WATCHDOG else [])]


def _row(
    name: str, about: str, unit: str, scale: float, pmu: str, kind: str | None, open_: list[str]
) -> dict[str, Any]:
    return {
        "name": name, "about": about, "unit": "1" if unit == EVENTS else unit, "scale": scale,
        "pmu": pmu, "type": kind, "open": open_,
    }  # fmt: skip
