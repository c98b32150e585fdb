"""The kernel's PMUs in /sys/bus/event_source: their events by name, and the translation of terms
such as "event=0xd1,umask=0x01" to the config words of perf_event_attr.

A PMU's `format` directory defines which bits of which word each term fills, for example
"config:0-7,32-35" or "config1:0-63"; a term's lowest bit goes to the lowest of them. On every PMU,
`config`, `config1` and `config2` are also terms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfprobe.cpu import files, topology
from perfprobe.kernel import access
from perfprobe.kernel.access import Problem
from perfprobe.perf.event_names import EventRequest
from perfprobe.perf.perf_events import (
    COUNTED_KEYS,
    HARDWARE,
    Event,
    Group,
    Kernel,
    RefusedError,
    open_event,
)

CONFIG_WORDS = ("config", "config1", "config2")
_TERM = re.compile(r"([A-Za-z0-9_.-]+)(?:=(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}))?")
_FORMAT = re.compile(r"(config[12]?):([0-9,-]+)")


@dataclass(frozen=True, slots=True)
class ConfigWords:
    """The config words of perf_event_attr, which select an event of a PMU."""

    config: int = 0
    config1: int = 0
    config2: int = 0

    def __or__(self, other: ConfigWords) -> ConfigWords:
        return ConfigWords(
            self.config | other.config, self.config1 | other.config1, self.config2 | other.config2
        )


class TermError(ValueError):
    """A term that the PMU does not have, or a value that does not fit into its bits."""


def parse_terms(text: str) -> dict[str, int]:
    """Returns the values of terms such as "event=0xd1,umask=0x01,edge"; a term without a value
    has 1. Raises TermError."""
    terms = {}
    for item in text.split(","):
        match = _TERM.fullmatch(item.strip())
        if match is None:
            raise TermError(f"{item.strip()!r} is not a term such as event=0x3c")
        number = match[2] or "1"
        terms[match[1]] = int(number, 16 if number[:2] in {"0x", "0X"} else 10)
    return terms


def encode_terms(path: str, terms: Mapping[str, int]) -> ConfigWords:
    """Returns the config words for these terms of the PMU at `path`. Raises TermError."""
    total = ConfigWords()
    for term, value in terms.items():
        total |= encode_term(path, term, value)
    return total


def encode_term(path: str, term: str, value: int) -> ConfigWords:
    """Returns the config words for one term of the PMU at `path`. Raises TermError."""
    word, bits = term, set(range(64))
    if term not in CONFIG_WORDS:
        match = _FORMAT.fullmatch(files.read_word(f"{path}/format/{term}"))
        if match is None:
            raise TermError(f"the PMU has no term {term!r}")
        word, bits = match[1], set()
        for part in match[2].split(","):
            first, _, last = part.partition("-")
            if not first.isdigit() or not (last or first).isdigit() or int(last or first) > 63:
                raise TermError(f"cannot parse the format of {term!r}")
            bits |= set(range(int(first), int(last or first) + 1))
        if not bits:
            raise TermError(f"the format of {term!r} has no bits")
    if value >> len(bits):
        raise TermError(f"{term}={value:#x} does not fit into its {len(bits)} bits")
    spread = sum((value >> i & 1) << bit for i, bit in enumerate(sorted(bits)))
    return ConfigWords(**{word: spread})


# --- PMUs -----------------------------------------------------------------------------------------

PMU_DIRECTORY = "sys/bus/event_source/devices"
CORE_PMU_TYPES = (("cpu", None), *topology.HYBRID_PMUS)
"""Names of core PMUs and their core types. Only hybrids have the PMUs with a type."""


@dataclass(frozen=True, slots=True)
class Pmu:
    """A PMU of the kernel; `type` is its number for perf_event_attr."""

    name: str
    path: str
    type: int
    cpus: frozenset[int] | None
    """The CPUs on which the PMU's events can be opened; None: any CPU. A core's PMU lists all its
    CPUs; another PMU lists one for each core, package or die that it counts."""
    core_type: str | None = None

    @property
    def current_cpus(self) -> frozenset[int] | None:
        """`cpus`, read again: when one of them goes offline, the kernel uses another CPU."""
        return _read_cpus(self.path) or self.cpus

    def serves(self, cpu: int) -> bool:
        return self.cpus is None or cpu in self.cpus

    @property
    def extended_type(self) -> int:
        """Bits of a generic event's config that select this PMU on a hybrid; 0 elsewhere."""
        return self.type << 32 if self.core_type else 0


def find_pmu(root: Path, name: str) -> Pmu | None:
    path = f"{root}/{PMU_DIRECTORY}/{name}"
    number = files.read_number(f"{path}/type")
    if number is None:
        return None
    return Pmu(name, path, number, _read_cpus(path), dict(CORE_PMU_TYPES).get(name))


def _read_cpus(path: str) -> frozenset[int] | None:
    listed_cpus = files.read_cpu_list(f"{path}/cpus") or files.read_cpu_list(f"{path}/cpumask")
    return frozenset(listed_cpus) if listed_cpus else None


def core_pmus(root: Path) -> list[Pmu]:
    return [pmu for name, _ in CORE_PMU_TYPES if (pmu := find_pmu(root, name)) is not None]


def find_core_pmu(pmus: Iterable[Pmu], cpu: int) -> Pmu | None:
    return next((pmu for pmu in pmus if pmu.serves(cpu)), None)


def open_core_event(
    kernel: Kernel, cpu: int, number: int, *, by_rdpmc: bool, with_trial: bool = False
) -> Group:
    """Opens the generic event `number` (a key of COUNTED_KEYS) on a CPU, in all rings.
    Raises RefusedError if the event cannot be counted (`with_trial`: after a trial), or if RDPMC
    cannot read it (`by_rdpmc`)."""
    pmu = find_core_pmu(core_pmus(kernel.root), cpu)
    if pmu is None:
        raise RefusedError(access.no_pmu_problem(kernel.root))
    event = Event(COUNTED_KEYS[number], HARDWARE, pmu.extended_type | number)
    group = open_event(kernel, event, cpu, with_trial=with_trial)
    if by_rdpmc and not group.uses_rdpmc:
        group.close()
        switch, reason = f"{pmu.path}/rdpmc", "its page is not available, or does not allow it"
        if files.read_number(switch) == 0:
            raise RefusedError(Problem("the kernel forbids RDPMC", f"echo 1 | sudo tee {switch}"))
        raise RefusedError(Problem(f"RDPMC may not read it: {reason}"))
    return group


def no_counters_problem(root: Path) -> Problem:
    """Returns why the `os` source has no counters of cores."""
    if core_pmus(root):
        return Problem("the os source does not read the core's counters", "--source perf")
    return access.no_pmu_problem(root)


# --- events ---------------------------------------------------------------------------------------


def event_code(pmu: Pmu, event: str) -> ConfigWords | None:
    """Returns the config words of an event that the PMU lists; None if it does not list the event,
    or lists it in an unknown syntax."""
    text = files.read_word(f"{pmu.path}/events/{event}")
    try:
        return encode_terms(pmu.path, parse_terms(text)) if text else None
    except TermError:
        return None


def event_config(pmu: Pmu, event: str) -> int | None:
    """Returns the word `config` of an event that the PMU lists; None without such an event, or if
    it also needs the other words."""
    words = event_code(pmu, event)
    return words.config if words is not None and words == ConfigWords(words.config) else None


def shift_to_term(pmu: Pmu, term: str, value: int) -> int | None:
    """Returns the value, shifted to the term's bits in `config`; None if the PMU does not have the
    term, the value does not fit, or the term is in another word."""
    try:
        words = encode_term(pmu.path, term, value)
    except TermError:
        return None
    return words.config if words == ConfigWords(words.config) else None


def event_scale(pmu: Pmu, event: str) -> float:
    """Returns the size of one count in the event's unit, as the PMU states it; 1 if it does not."""
    try:
        value = float(files.read_word(f"{pmu.path}/events/{event}.scale"))
    except ValueError:
        return 1.0
    return value if 1e-18 <= value < 1e12 else 1.0


def event_unit(pmu: Pmu, event: str) -> str:
    """Returns the unit of the scaled count, as the PMU states it; "1" if it states none."""
    text = files.read_word(f"{pmu.path}/events/{event}.unit")
    return text if text.isprintable() and 0 < len(text) <= 16 else "1"


# --- chosen events -------------------------------------------------------------------------------

EVENT_UNIT = "events"
"""Unit of events of a core's PMU; the wire limits the rate of this unit."""


@dataclass(frozen=True, slots=True)
class ChosenEvent:
    """An event that the user has chosen with -e, for all PMUs of the machine."""

    request: EventRequest
    description: str
    unit: str
    scale: float
    events: dict[str | None, Event] = field(default_factory=dict)
    """The event to open, by core PMU; under None, an event that is the same on all CPUs."""
    problem: Problem | None = None
    """The reason why no CPU can count the event."""

    def event_on(self, pmu: Pmu | None) -> Event | None:
        """Returns the event to open on CPUs of this core PMU; None if they do not have it."""
        own_event = None if pmu is None else self.events.get(pmu.name)
        return own_event or self.events.get(None)
