"""The catalogue of events that can be chosen by name on this machine: the kernel's generic events,
those that a PMU lists, and those that perf lists, if it is installed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfprobe.cpu import cpu_sets, files
from perfprobe.errors import UsageError
from perfprobe.kernel import access
from perfprobe.perf import event_names, perf_pmus
from perfprobe.perf.event_names import EventRequest, nearest_names
from perfprobe.perf.perf_events import COUNTED_KEYS, HARDWARE, SOFTWARE, Event, Kernel, find_refusal
from perfprobe.perf.perf_pmus import (
    CORE_PMU_TYPES,
    EVENT_UNIT,
    PMU_DIRECTORY,
    ChosenEvent,
    ConfigWords,
    Pmu,
    TermError,
)

HW_CACHE = 3  # PERF_TYPE_
S_PER_NS = 1e-9


@dataclass(frozen=True, slots=True)
class GenericEvent:
    """An event that perf_event_open knows by a number, on all CPU models."""

    name: str
    description: str
    config: int
    unit: str = "1"
    scale: float = 1.0


SOFTWARE_EVENTS = (
    GenericEvent("context-switches", "context switches", 3),
    GenericEvent("cpu-migrations", "tasks that came from another CPU", 4),
    GenericEvent("page-faults", "page faults", 2),
    GenericEvent("minor-faults", "page faults that needed no disk", 5),
    GenericEvent("major-faults", "page faults that needed a disk", 6),
    GenericEvent("alignment-faults", "accesses that the kernel had to align", 7),
    GenericEvent("emulation-faults", "instructions that the kernel had to emulate", 8),
    GenericEvent("cpu-clock", "elapsed time by the kernel's clock", 0, "s", S_PER_NS),
    GenericEvent("task-clock", "elapsed time by the tasks' clock", 1, "s", S_PER_NS),
    GenericEvent("bpf-output", "records that BPF programs wrote", 10),
    GenericEvent("cgroup-switches", "switches to a task of another control group", 11),
)
HARDWARE_EVENTS = (
    GenericEvent("cycles", "cycles, unhalted", 0, "cycles"),
    GenericEvent("instructions", "instructions retired", 1, "instructions"),
    GenericEvent("cache-references", "accesses to the last-level cache", 2, EVENT_UNIT),
    GenericEvent("cache-misses", "misses of the last-level cache", 3, EVENT_UNIT),
    GenericEvent("branches", "branches retired", 4, EVENT_UNIT),
    GenericEvent("branch-misses", "branches predicted wrongly", 5, EVENT_UNIT),
    GenericEvent("bus-cycles", "cycles of the bus, unhalted", 6, EVENT_UNIT),
    GenericEvent("stalled-cycles-frontend", "cycles that waited for instructions", 7, EVENT_UNIT),
    GenericEvent("stalled-cycles-backend", "cycles that waited for data or units", 8, EVENT_UNIT),
    GenericEvent("ref-cycles", "cycles at the base clock, unhalted", 9, "cycles"),
)
ALIASES = {
    "cs": "context-switches", "migrations": "cpu-migrations", "faults": "page-faults",
    "cpu-cycles": "cycles", "branch-instructions": "branches",
    "idle-cycles-frontend": "stalled-cycles-frontend",
    "idle-cycles-backend": "stalled-cycles-backend",
}  # fmt: skip
_CACHES = ("L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node")
_CACHE_ACCESSES = {"load": "loads", "store": "stores", "prefetch": "prefetches"}
_RAW = re.compile(r"r([0-9a-fA-F]{1,16})")


CACHE_EVENTS = tuple(
    event
    for cache, name in enumerate(_CACHES)
    for access, (singular, plural) in enumerate(_CACHE_ACCESSES.items())
    for event in (
        GenericEvent(f"{name}-{plural}", f"{name}: {plural}", cache | access << 8, EVENT_UNIT),
        GenericEvent(f"{name}-{singular}-misses", f"{name}: {plural} that missed",
                     cache | access << 8 | 1 << 16, EVENT_UNIT),
    )
)  # fmt: skip
"""Generic cache events: each combination of cache, kind of access and result (access or miss)."""
GENERIC = [
    *((known, SOFTWARE) for known in SOFTWARE_EVENTS),
    *((known, HARDWARE) for known in HARDWARE_EVENTS),
    *((known, HW_CACHE) for known in CACHE_EVENTS),
]
"""All generic events, with their PERF_TYPE."""


@dataclass(frozen=True, slots=True)
class ListedEvent:
    """An event that `perf list` shows: its PMU, terms (event=0xd1,umask=1) and description."""

    pmu: str
    terms: str
    description: str


class Catalogue:
    def __init__(self, root: Path, *, installed: bool = True) -> None:
        """With `installed`, includes the events that perf lists for this machine's CPU."""
        self._root, self._installed = root, installed
        self.cores = perf_pmus.core_pmus(root)

    @functools.cached_property
    def perf_listing(self) -> Mapping[str, list[ListedEvent]]:
        """Events that perf lists for this machine's core PMUs, by name in lower case."""
        pmus = {pmu.name for pmu in self.cores}
        all_events = perf_events() if pmus and self._installed else {}
        local_events = {
            name: [n for n in events if n.pmu in pmus] for name, events in all_events.items()
        }
        return {name: events for name, events in local_events.items() if events}

    def find(self, request: EventRequest) -> ChosenEvent:
        """Returns the event with this name. Raises ValueError if there is none."""
        if request.pmu:
            return self._find_by_terms(request)
        word = ALIASES.get(request.catalogue_name, request.catalogue_name)
        for generic, kind in GENERIC:
            if generic.name == word:
                return self._find_generic(request, generic, kind)
        if (match := _RAW.fullmatch(word)) is not None:
            code = ConfigWords(int(match[1], 16))
            raw: dict[str | None, Event] = {
                pmu.name: _make_event(request, pmu.type, code) for pmu in self.cores
            }
            return self._chosen_event(request, f"code 0x{match[1]}", EVENT_UNIT, 1.0, raw)
        return self._find_listed(request, word)

    def names(self) -> list[str]:
        """Returns all names that `find` accepts on this machine."""
        generic = [event.name for event, kind in GENERIC if kind == SOFTWARE or self.cores]
        listing = (name for pmu in self.cores for name in listed_event_names(pmu))
        return [*generic, *ALIASES, *listing, *self.perf_listing]

    def _find_generic(self, request: EventRequest, generic: GenericEvent, kind: int) -> ChosenEvent:
        def event(extended: int) -> Event:
            code = ConfigWords(extended | generic.config)
            return _make_event(request, kind, code, core=kind != SOFTWARE)

        events: dict[str | None, Event] = {pmu.name: event(pmu.extended_type) for pmu in self.cores}
        if kind == SOFTWARE:
            events = {None: event(0)}
        return self._chosen_event(request, generic.description, generic.unit, generic.scale, events)

    def _chosen_event(
        self,
        request: EventRequest,
        description: str,
        unit: str,
        scale: float,
        events: dict[str | None, Event],
    ) -> ChosenEvent:
        no_pmu = None if events else access.no_pmu_problem(self._root)
        return ChosenEvent(request, description, unit, scale, events, no_pmu)

    def _find_listed(self, request: EventRequest, event: str) -> ChosenEvent:
        events: dict[str | None, Event] = {}
        unit, scale = EVENT_UNIT, 1.0
        for pmu in self.cores:
            name = next(
                (name for name in listed_event_names(pmu) if name.lower() == event.lower()), None
            )
            code = None if name is None else perf_pmus.event_code(pmu, name)
            if name is not None and code is not None:
                events[pmu.name] = _make_event(request, pmu.type, code)
                unit, scale = unit_and_scale(pmu, name)
        description = event
        # If no PMU lists the event, perf may list it.
        for listed in [] if events else self.perf_listing.get(event.lower(), []):
            pmu = next(pmu for pmu in self.cores if pmu.name == listed.pmu)
            with suppress(TermError):
                code = perf_pmus.encode_terms(pmu.path, perf_pmus.parse_terms(listed.terms))
                events[pmu.name] = _make_event(request, pmu.type, code)
                description = listed.description or event
        if not events:
            raise UsageError(self._unknown_event_text(request))
        return ChosenEvent(request, description, unit, scale, events)

    def _find_by_terms(self, request: EventRequest) -> ChosenEvent:
        pmu = perf_pmus.find_pmu(self._root, request.pmu)
        if pmu is None:
            names = ", ".join(files.file_names(f"{self._root}/{PMU_DIRECTORY}")) or "none"
            raise UsageError(
                f"-e {request.name}: there is no PMU {request.pmu!r}; there are: {names}"
            )
        core = pmu.name in {core_pmu.name for core_pmu in self.cores}
        if pmu.cpus is not None and not core:
            raise UsageError(f"-e {request.name}: {pmu.name} does not count CPUs separately")
        terms: dict[str, int] = {}
        try:
            for item in request.terms.split(","):
                raw = _RAW.fullmatch(item)
                event_path = "" if "=" in item or not item else f"{pmu.path}/events/{item}"
                # An item may be the name of an event that the PMU lists, which has terms.
                if event_terms := event_path and files.read_word(event_path):
                    terms |= perf_pmus.parse_terms(event_terms)
                elif raw is not None:
                    terms["config"] = int(raw[1], 16)
                else:
                    terms |= perf_pmus.parse_terms(item)
            code = perf_pmus.encode_terms(pmu.path, terms)
        except TermError as error:
            raise UsageError(f"-e {request.name}: {error}") from None
        unit, scale = unit_and_scale(pmu, request.terms) if core else ("1", 1.0)
        event = _make_event(request, pmu.type, code, core=core)
        pmu_key = pmu.name if core else None
        return ChosenEvent(request, f"{pmu.name}/{request.terms}/", unit, scale, {pmu_key: event})

    def _unknown_event_text(self, request: EventRequest) -> str:
        group, _, name = request.catalogue_name.partition(":")
        event_directories = "sys/kernel/tracing/events", "sys/kernel/debug/tracing/events"
        paths = [f"{self._root}/{path}/{group}/{name}/id" for path in event_directories]
        if name and any(files.read_number(path) is not None for path in paths):
            return f"-e {request.catalogue_name}: tracepoints are not counted (use perf stat -e)"
        similar = nearest_names(request.catalogue_name, self.names())
        text = f"-e {request.catalogue_name}: no event of that name is known here"
        if similar:
            text += f"; nearest: {', '.join(similar)}"
        elif not self.cores:
            text += f" ({access.no_pmu_problem(self._root).why})"
        return f"{text}; perftop events lists all"


def listed_event_names(pmu: Pmu) -> list[str]:
    suffixes = (".scale", ".unit", ".snapshot")
    return [name for name in files.file_names(f"{pmu.path}/events") if not name.endswith(suffixes)]


def unit_and_scale(pmu: Pmu, name: str) -> tuple[str, float]:
    """Returns the unit and the scale of an event that the PMU lists."""
    unit = perf_pmus.event_unit(pmu, name)
    return (EVENT_UNIT if unit == "1" else unit), perf_pmus.event_scale(pmu, name)


def _make_event(request: EventRequest, kind: int, code: ConfigWords, *, core: bool = True) -> Event:
    rings = request.kernel_only, request.user_only
    more_words = code.config1, code.config2
    return Event(request.key, kind, code.config, *rings, *more_words, is_core=core)


# --- events that perf lists -----------------------------------------------------------------------
# perf's output is not trusted: an encoding is used only if it fits the formats of a core PMU of
# this machine.

PERF_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""PATH for perf. The caller's PATH is not used, since perfprobe may run as root."""
PERF_LIST_TIMEOUT_S = 5.0
MAX_LISTING_BYTES = 32 << 20
MAX_TEXT_LENGTH = 200
_ENCODING = re.compile(r"([A-Za-z0-9_-]{1,32})/([A-Za-z0-9_=,.x-]{1,200})/[a-zA-Z]*")
_IGNORED_TERMS = ("period", "freq", "name", "metric-id", "long_desc", "desc")
"""Terms in perf's listing that do not select an event."""


def perf_events(run: Callable[[], bytes] | None = None) -> Mapping[str, list[ListedEvent]]:
    """Returns the events of `perf list -j` that have an encoding, by name in lower case; empty
    without a recent perf. `run` returns perf's output; tests replace it."""
    import json  # imported here, like subprocess, so that perfprobe starts faster
    import subprocess

    try:
        listing = json.loads((run or _perf_listing)())
    except (OSError, ValueError, subprocess.SubprocessError, RecursionError):
        return {}
    events: dict[str, list[ListedEvent]] = {}
    for item in listing if isinstance(listing, list) else []:
        texts = item if isinstance(item, dict) else {}
        keys = ("EventName", "Encoding", "BriefDescription")  # as in tools/perf/builtin-list.c
        name, encoding, about = (t if isinstance(t := texts.get(key), str) else "" for key in keys)
        match = _ENCODING.fullmatch(encoding)
        if match is not None and 0 < len(name) <= MAX_TEXT_LENGTH:
            terms = [t for t in match[2].split(",") if t.partition("=")[0] not in _IGNORED_TERMS]
            description = about[:MAX_TEXT_LENGTH] if about.isprintable() else ""
            event = ListedEvent(match[1], ",".join(terms), description)
            events.setdefault(name.lower(), []).append(event)
    return events


def _perf_listing() -> bytes:
    """Returns the output of `perf list -j`. Raises OSError or SubprocessError."""
    import shutil
    import subprocess

    path = shutil.which("perf", path=PERF_PATH)
    if path is None:
        raise FileNotFoundError("perf")
    with subprocess.Popen(
        [path, "list", "-j"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={"LC_ALL": "C", "PATH": PERF_PATH, "PAGER": "cat"},
    ) as perf:  # fmt: skip
        try:
            output, _ = perf.communicate(timeout=PERF_LIST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            perf.kill()
            raise
    return output if len(output) <= MAX_LISTING_BYTES else b""


# --- JSON output of `events` ---------------------------------------------------------------------

WATCHDOG_EVENT = "cycles"


def list_events(
    root: Path, word: str | None, catalogue: Catalogue | None = None, kernel: Kernel | None = None
) -> dict[str, Any]:
    """Returns the JSON output of `events`: events whose name or description contains this word
    (None: all). With a kernel, each event of a core is opened for a trial, if permitted."""
    catalogue = catalogue or Catalogue(root)
    rows = [*_event_rows(root, catalogue)]
    if word is not None:
        lower_word = word.casefold()
        rows = [e for e in rows if lower_word in f"{e['name']} {e['about']}".casefold()]
    pmus = catalogue.cores
    refused = access.perf_problem(root)
    missing = [] if pmus else [access.no_pmu_problem(root)]
    missing += [] if refused is None else [refused]
    for row in rows if kernel is not None and refused is None else ():
        # Each event is opened on the first CPU of its PMU.
        pmu = next((pmu for pmu in pmus if pmu.name == row["pmu"]), None)
        with suppress(ValueError):
            event = catalogue.find(event_names.parse_groups(row["name"])[0][0]).event_on(pmu)
            if pmu is not None and event is not None:
                problem = find_refusal(kernel or Kernel(), event, min(pmu.cpus or {0}))
                row["refused"] = problem and problem.why
    return {
        "events": rows,
        "pmus": [
            {
                "pmu": pmu.name,
                "type": dict(CORE_PMU_TYPES).get(pmu.name),
                "cpus": None if pmu.cpus is None else cpu_sets.format(sorted(pmu.cpus)),
            }
            for pmu in pmus
        ],
        "missing": [{"what": "events", "why": m.why, "fix": m.fix} for m in missing],
    }


def _event_rows(root: Path, catalogue: Catalogue) -> Iterator[dict[str, Any]]:
    """Yields rows for software events, and for the events of each core PMU: generic events, then
    those that the PMU lists, then those that perf lists."""

    def row(
        pmu: str, name: str, text: str, unit: str, scale: float, users: list[str]
    ) -> dict[str, Any]:
        return {
            "name": name, "about": text, "unit": "1" if unit == EVENT_UNIT else unit,
            "scale": scale, "pmu": pmu, "type": dict(CORE_PMU_TYPES).get(pmu), "open": users,
            "refused": None,
        }  # fmt: skip

    for event in SOFTWARE_EVENTS:
        yield row("software", event.name, event.description, event.unit, event.scale, [])
    watchdog = files.read_number(f"{root}/proc/sys/kernel/nmi_watchdog") == 1
    generic = {event.name: event for event in (*HARDWARE_EVENTS, *CACHE_EVENTS)}
    for pmu in catalogue.cores:
        for name, event in generic.items():
            is_own = event in HARDWARE_EVENTS and event.config in COUNTED_KEYS
            users = ["perftop"] if is_own else []
            users += ["NMI watchdog"] if watchdog and name == WATCHDOG_EVENT else []
            yield row(pmu.name, name, event.description, event.unit, 1.0, users)
        for name in listed_event_names(pmu):
            if name not in generic and perf_pmus.event_code(pmu, name) is not None:
                terms = files.read_word(f"{pmu.path}/events/{name}")
                yield row(pmu.name, name, f"{pmu.name}/{terms}/", *unit_and_scale(pmu, name), [])
        for name, events in catalogue.perf_listing.items():
            if listed_event := next((n for n in events if n.pmu == pmu.name), None):
                text = listed_event.description or f"{pmu.name}/{listed_event.terms}/"
                yield row(pmu.name, name, text, "1", 1.0, [])
