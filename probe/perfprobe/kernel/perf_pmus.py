"""The kernel's PMUs in /sys/bus/event_source, and their events by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perfprobe.cpu import files
from perfprobe.frozen import frozen
from perfprobe.kernel import access, event_terms
from perfprobe.kernel.access import Trouble
from perfprobe.kernel.event_terms import Code
from perfprobe.kernel.perf_events import Refused

DEVICES = "sys/bus/event_source/devices"
CORES = (("cpu", None), ("cpu_core", "P"), ("cpu_atom", "E"), ("cpu_lowpower", "L"))
"""Names and core types. A hybrid has the ones with a type, other machines the first."""


@frozen
class Pmu:
    name: str
    path: str
    type: int
    cpus: frozenset[int] | None
    """The CPUs that it counts on, or the ones to ask for their whole core or package; None: all
    CPUs, each for itself."""
    hybrid: str | None = None
    """The core type on a hybrid, where generic events must name the PMU."""

    @property
    def cpus_now(self) -> frozenset[int] | None:
        """`cpus`, read again: when one of them goes off, the kernel puts another in its place."""
        return _cpus(self.path) or self.cpus

    def serves(self, cpu: int) -> bool:
        return self.cpus is None or cpu in self.cpus

    @property
    def extended(self) -> int:
        """The bits that the config of a generic event needs besides its number."""
        return self.type << 32 if self.hybrid else 0

    def indirect(self) -> Trouble:
        """Why RDPMC cannot read its counters."""
        if files.number(f"{self.path}/rdpmc") == 0:
            return Trouble("the kernel forbids RDPMC", f"echo 1 | sudo tee {self.path}/rdpmc")
        return Trouble("RDPMC may not read it: its page is not available, or does not allow it")


def find(root: Path, name: str) -> Pmu | None:
    path = f"{root}/{DEVICES}/{name}"
    number = files.number(f"{path}/type")
    if number is None:
        return None
    return Pmu(name, path, number, _cpus(path), dict(CORES).get(name))


def _cpus(path: str) -> frozenset[int] | None:
    listed = files.cpus(f"{path}/cpus") or files.cpus(f"{path}/cpumask")
    return frozenset(listed) if listed else None


def cores(root: Path) -> list[Pmu]:
    return [pmu for name, _ in CORES if (pmu := find(root, name)) is not None]


def core_of(pmus: Iterable[Pmu], cpu: int) -> Pmu | None:
    return next((pmu for pmu in pmus if pmu.serves(cpu)), None)


def core_at(root: Path, cpu: int) -> Pmu:
    """The core PMU of a CPU. Raises Refused if there is none."""
    pmu = core_of(cores(root), cpu)
    if pmu is None:
        raise Refused(access.no_pmu(root))
    return pmu


# --- events ---------------------------------------------------------------------------------------


def code(pmu: Pmu, event: str) -> Code | None:
    """The words of an event that the PMU names; None: it names none, or not in a way that is
    understood."""
    text = files.word(f"{pmu.path}/events/{event}")
    try:
        return event_terms.code(pmu.path, event_terms.values(text)) if text else None
    except event_terms.TermError:
        return None


def config(pmu: Pmu, event: str) -> int | None:
    """attr.config of an event that the PMU names; None: there is no such event, or it needs more
    than config."""
    found = code(pmu, event)
    return found.config if found is not None and found == Code(found.config) else None


def placed_term(pmu: Pmu, term: str, value: int) -> int | None:
    """The value, shifted to the term's bits in attr.config; None: the PMU lacks the term, the value
    does not fit, or the term has its bits elsewhere."""
    try:
        found = event_terms.placed(pmu.path, term, value)
    except event_terms.TermError:
        return None
    return found.config if found == Code(found.config) else None


def scale(pmu: Pmu, event: str) -> float:
    """One count in the event's unit; 1 where the PMU does not say."""
    try:
        value = float(files.word(f"{pmu.path}/events/{event}.scale"))
    except ValueError:
        return 1.0
    return value if 1e-18 <= value < 1e12 else 1.0


def unit(pmu: Pmu, event: str) -> str:
    """The unit of the scaled count, as the PMU words it; "1" where it does not say."""
    text = files.word(f"{pmu.path}/events/{event}.unit")
    return text if text.isprintable() and 0 < len(text) <= 16 else "1"
