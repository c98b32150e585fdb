"""The kinds of episodes, their causes, and the type of an episode.

Each kind and cause is an entry with a marker, a name and an explanation. A new kind of loss needs
an entry here and a file in `detect/`. The screen, `why`, `summary`, `diff`, the exporter and help
all use these entries.

A sentence is a template. Braces name a field that `output/sentences.py` fills in (for example,
`clocks` is "2.78 of 3.40 GHz"), and a verb is written `present|past`. The first sentence whose
fields are all known is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from perftop.model.confidence import Confidence

Depth = Literal["share", "hz", "gain", "count", ""]
"""Meaning of an episode's depth: a share of the time or of the work, a clock that is lost or
gained, a number of events, or nothing."""


@dataclass(frozen=True)
class Kind:
    """A kind of episode. Each cause of a neighbour episode is a separate kind."""

    key: str
    marker: str
    """Marker of the kind: one character, the same in all views."""
    meaning: str
    """Explanation of the kind in the legend and the glossary."""
    depth: Depth = "share"
    is_wrong: bool = True
    """Whether the episode is a problem and so is drawn as an alarm."""
    worsened_key: str = ""
    """Key of the number that the episode makes worse."""
    loss_text: str = ""
    """Name of the loss, for example "time to heat"."""
    costs_cycles: bool = False
    """Whether the episode costs cycles; other kinds cost time."""
    is_per_cpu: bool = False
    """Whether episodes affect each CPU separately. Other kinds can affect a whole package."""
    explained_keys: tuple[str, ...] = ()
    """Keys of the numbers of a run that the episode can explain."""
    sentences: tuple[str, ...] = ()


_LOW_CLOCK_SENTENCES = (
    "Wide SIMD code of {who} keeps|kept {where} at {clocks}",
    "Wide SIMD code of {own} keeps|kept {where} at {clocks}",
    "{who} ({short}) takes|took {lost} of {where}",
    "{cause} keeps|kept {where} at {clocks}",
    "{cause} lowers|lowered the clock of {where} by {lost}",
    "{cause} keeps|kept {where} below {its} ceiling",
)
_STEAL_SENTENCES = (
    "The hypervisor takes|took {lost} of {where} from {loser}",
    "The hypervisor takes|took {lost} of {where}",
    "The hypervisor takes|took time of {where}",
)

KINDS: dict[str, Kind] = {
    kind.key: kind
    for kind in (
        Kind(
            "turbo-drop", "▼", "turbo-drop: the clock is below what turbo allows", "hz",
            worsened_key="busy_hz", loss_text="clock", costs_cycles=True,
            explained_keys=("busy_hz", "below_ceiling", "lost_ratio"),
            sentences=_LOW_CLOCK_SENTENCES,
        ),
        Kind(
            "throttle", "■", "throttle: heat slows a package down",
            worsened_key="involuntary", loss_text="time to heat",
            explained_keys=("involuntary", "lost_ratio"),
            sentences=(
                "{cause} stops|stopped {where} for {lost} of the time",
                "{cause} is|was active on {where} {nothing}",
                "{cause} is|was active on {where}",
            ),
        ),
        Kind(
            "involuntary-halt", "║", "involuntary halt: the core was halted although it had work",
            worsened_key="involuntary", loss_text="time in halts",
            explained_keys=("involuntary", "lost_ratio"),
            sentences=(
                "{cause} halts|halted {where} for {lost} of the time",
                "{cause} halts|halted {where}",
            ),
        ),
        Kind(
            "neighbour", "◐",
            "neighbour: a CPU loses to another task, to its sibling or to another VM",
            is_per_cpu=True,
            explained_keys=("waited_s", "ipc", "lost_ratio"),
        ),
        Kind(
            "quota", "▣", "quota: a control group used up its CPU quota",
            worsened_key="runs", loss_text="to a CPU quota", is_per_cpu=True,
            explained_keys=("waited_s", "lost_ratio"),
            sentences=(
                "{owner} is|was stopped by its CPU quota for {lost} of the time",
                "A CPU quota stops|stopped tasks on {where} for {lost} of the time",
                "A CPU quota stops|stopped tasks on {where}",
            ),
        ),
        Kind(
            "stopped", "▮", "stopped: a signal, a debugger or a frozen group stopped a watched job",
            loss_text="time stopped", is_per_cpu=True, explained_keys=("lost_ratio",),
            sentences=(
                "{cause} keeps|kept {loser} from running",
                "{cause} keeps|kept threads on {where} from running",
            ),
        ),
        Kind(
            "interrupt", "↯", "interrupt: interrupts took time of a CPU from its tasks",
            loss_text="to interrupts", is_per_cpu=True, explained_keys=("lost_ratio",),
            sentences=(
                "{cause} ({line}) takes|took {lost} of {where}",
                "{cause} takes|took {lost} of {where}",
                "{cause} takes|took time of {where}",
            ),
        ),
        Kind(
            "memory-stall", "▤", "memory stall: tasks were stalled on memory",
            loss_text="time to memory", is_per_cpu=True, explained_keys=("lost_ratio",),
            sentences=(
                "{cause} of {owner} stops|stopped its tasks for {lost} of the time",
                "{cause} stops|stopped tasks for {lost} of the time",
                "{cause} stops|stopped tasks",
            ),
        ),
        Kind(
            "steal", "╳", "steal: the hypervisor took time from this VM",
            worsened_key="steal", loss_text="to the hypervisor", is_per_cpu=True,
            explained_keys=("steal", "lost_ratio"),
            sentences=_STEAL_SENTENCES,
        ),
        Kind(
            "license", "◊", "license: wide SIMD code asks for a lower clock", "hz",
            worsened_key="busy_hz", loss_text="clock", costs_cycles=True,
            explained_keys=("busy_hz", "below_ceiling", "lost_ratio"),
            sentences=(
                "Wide SIMD code (level {level}) keeps|kept {where} at {clocks}",
                "Wide SIMD code (level {level}) lowers|lowered the clock of {where} by {lost}",
                "Wide SIMD code runs|ran on {where} at level {level}",
            ),
        ),
        Kind(
            "smi", "!", "SMI: firmware stopped all CPUs", "count", loss_text="time to firmware",
            sentences=(
                "The firmware stops|stopped {where} {lost} by SMI",
                "The firmware stops|stopped {where} by SMI",
            ),
        ),
        Kind(
            "ramp", "╱", "ramp: a clock climbed from idle to its steady value", "gain",
            is_wrong=False, costs_cycles=True,
            sentences=(
                "{where} took {climb} to climb from {first} to {steady}",
                "{where} climbed",
            ),
        ),
        Kind(
            "suspect", "≁", "suspect: counters with impossible values", "", is_wrong=False,
            sentences=(
                "perftop does|did not trust {counters} of {where}",
                "perftop does|did not trust counters of {where}",
            ),
        ),
        Kind(
            "offline", "○", "a CPU went offline", "", is_wrong=False,
            sentences=("{where} {is} offline",),
        ),
        Kind(
            "online", "•", "a CPU came back", "", is_wrong=False,
            sentences=("{where} came online",),
        ),
    )
}  # fmt: skip
"""Kinds of episodes by key, worst first."""
UNKNOWN_KIND = Kind(
    "other", "│", "an episode of a kind that only a newer perftop knows", is_wrong=False,
    sentences=("{kind} on {where}",),
)  # fmt: skip
MARK = Kind(
    "mark", "│", "a moment that was given a name", "", is_wrong=False, sentences=("{label}",)
)


def _neighbour_kind(cause: str, worsened_key: str, loss: str, *sentences: str) -> Kind:
    marker = KINDS["steal" if cause == "hypervisor" else "neighbour"].marker
    kind = replace(KINDS["neighbour"], key=cause, marker=marker, sentences=sentences)
    return replace(kind, worsened_key=worsened_key, loss_text=loss)


NEIGHBOURS: dict[str, Kind] = {
    kind.key: kind
    for kind in (
        _neighbour_kind(
            "sibling", "ipc", "to a sibling",
            "{who} on the sibling takes|took {lost} of {loser}'s IPC on {where}",
            "{who} on the sibling takes|took {lost} of {loser}'s IPC",
            "{who} on the sibling takes|took {lost} of the IPC of {where}",
            "{who} (sibling) takes|took {lost} of the IPC of {where}",
            "{who} takes|took {lost} of the IPC of {where}",
            "{own} takes|took {lost} of its own IPC on {where}",
            "A sibling takes|took {lost} of {loser}'s IPC on {where}",
            "A sibling takes|took {lost} of the IPC of {where}",
            "A sibling slows|slowed {where}",
        ),
        _neighbour_kind(
            "scheduler", "runs", "time in the queue",
            "{loser} waits|waited {lost} of its time for {who} on {where}",
            "{loser} waits|waited {lost} of its time for {who}",
            "{loser} waits|waited {lost} for {who}",
            "{comm} waits|waited {lost} for {who}",
            "Threads of {own} wait|waited {lost} of their time for each other on {where}",
            "Threads of {own} wait|waited {lost} of their time for each other",
            "{loser} waits|waited {lost} of its time for {where}",
            "{loser} waits|waited {lost}",
            "{loser} waits|waited for {where}",
        ),
        _neighbour_kind(
            "package", "busy_hz", "clock to their package",
            "{who} takes|took {lost} of {loser}'s clock on {where}",
            "{who} takes|took {lost} of {loser}'s clock",
            "{who} takes|took {lost} of the clock of {where}",
            "Other tasks take|took {lost} of {loser}'s clock on {where}",
            "Other tasks take|took {lost} of the clock of {where}",
            "Other tasks slow|slowed {where}",
        ),
        _neighbour_kind(
            "memory", "ipc", "to saturated memory",
            "{who} saturates|saturated memory bandwidth: {loser} loses|lost {lost} of its IPC"
            " on {where}",
            "{who} saturates|saturated memory bandwidth: {lost} of the IPC is|was lost on {where}",
            "Others saturate|saturated memory bandwidth: {loser} loses|lost {lost} of its IPC"
            " on {where}",
            "Others saturate|saturated memory bandwidth: {lost} of the IPC is|was lost on {where}",
            "Memory bandwidth is|was saturated: {lost} of the IPC lost on {where}",
        ),
        _neighbour_kind(
            "cache", "ipc", "to a crowded L3",
            "{who} displaces|displaced {loser}'s data from the L3: {lost} of its IPC lost on"
            " {where}",
            "{who} displaces|displaced data from the L3: {lost} of the IPC lost on {where}",
            "Others displace|displaced {loser}'s data from the L3: {lost} of its IPC lost on"
            " {where}",
            "Others displace|displaced data from the L3: {lost} of the IPC lost on {where}",
        ),
        _neighbour_kind("hypervisor", "steal", "to the hypervisor", *_STEAL_SENTENCES),
    )
}  # fmt: skip
"""Kinds of neighbour episodes by cause. Each has its own number and sentences."""


class KindAndCause(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def cause(self) -> str: ...


def kind_of(episode: KindAndCause) -> Kind:
    """Returns the kind of an episode. For a neighbour episode, it depends on the cause."""
    return kind_of_cause(episode.kind, episode.cause)


def kind_of_cause(kind: str, cause: str) -> Kind:
    neighbour = NEIGHBOURS.get(cause) if kind == "neighbour" else None
    return neighbour or KINDS.get(kind) or (MARK if kind == MARK.key else UNKNOWN_KIND)


@dataclass(frozen=True)
class Cause:
    key: str
    name: str
    """Name in a list, for example "power limit PL1"."""
    subject: str = ""
    """Name at the start of a sentence, in the singular; empty for a cause that never starts one."""
    short_text: str = ""
    """Name in narrow columns, for example "PL1"."""
    remedy: str = ""
    """Advice to the user; empty if there is none."""
    states: tuple[str, ...] = ()
    """Keys of the recorded settings and states of the machine that can be this cause."""


STEAL_CAUSE = ("steal", "hypervisor")
"""Kind and cause of time taken by the hypervisor, which two detectors report."""
_POWER_CAP = "the limit in /sys/class/powercap; the power cap in the BMC"

CAUSES: dict[str, Cause] = {
    cause.key: cause
    for cause in (
        Cause("power-pl1", "power limit PL1", "Power limit PL1", "PL1", _POWER_CAP,
              ("power_limit_w",)),
        Cause("power-pl2", "power limit PL2", "Power limit PL2", "PL2", _POWER_CAP,
              ("power_limit2_w",)),
        Cause("power-ppt", "power limit PPT", "Power limit PPT", "PPT",
              "the power limit (PPT, cTDP) in the firmware's setup"),
        Cause("current", "current limit", "The current limit", "current"),
        Cause(
            "thermal", "thermal", "Thermal throttling", "heat",
            "cooling: fans, air flow, dust; or fewer busy cores",
        ),
        Cause(
            "prochot", "PROCHOT", "The PROCHOT signal", "PROCHOT",
            "the power supply and the BMC, which can pull PROCHOT",
        ),
        Cause("vr", "voltage regulator", "The voltage regulator", "VR"),
        Cause(
            "hwp", "HWP", "The power-saving setting (HWP)", "HWP",
            "cpupower frequency-set -g performance",
            ("governor", "energy_performance_preference", "hwp_epp"),
        ),
        Cause(
            "policy", "policy", "A clock limit of the system", "policy", "cpupower frequency-info",
            ("turbo", "max_perf_pct", "max_hz", "governor"),
        ),
        Cause(
            "license", "SIMD license", "Wide SIMD code", "SIMD",
            "-mprefer-vector-width=256, if a compiler generated that code",
        ),
        Cause("level", "SIMD level", "", "SIMD"),
        Cause("simd", "SIMD", "A changing SIMD level", "SIMD"),
        Cause(
            "hypervisor", "hypervisor", "The hypervisor", "steal",
            "another host or instance size; nothing inside this VM helps",
        ),
        Cause(
            "governor", "governor", "The governor", "gov",
            "cpupower frequency-set -g performance", ("governor",),
        ),
        Cause("modulation", "clock modulation", "Clock modulation", "duty"),
        Cause("hdc", "HDC", "Hardware duty cycling", "HDC"),
        Cause(
            "smm", "SMM", "The firmware (SMM)", "SMI",
            "the firmware's setup: USB legacy support, power management",
        ),
        Cause(
            "clock-change", "clock changes", "A changing clock", "clock",
            "cpupower frequency-set -g performance",
        ),
        Cause(
            "quota", "CPU quota", "A CPU quota", "quota",
            "a higher CPU quota: the pod's limits.cpu, docker --cpus, systemd's CPUQuota=",
        ),
        Cause(
            "stopped", "stopped", "A signal, a debugger or a frozen group", "stopped",
            "kill -CONT PID; detach the debugger; thaw the control group",
        ),
        Cause(
            "split-lock", "split locks", "The kernel, after each split lock,", "split",
            "align its atomic variables; sysctl kernel.split_lock_mitigate=0",
        ),
        Cause(
            "irq", "interrupts", "Interrupt work", "irq",
            "move the line: /proc/irq/NUMBER/smp_affinity_list, irqbalance",
        ),
        Cause(
            "softirq", "softirqs", "Softirq work", "softirq",
            "spread it: the affinity of its interrupt, rps_cpus of a network queue",
        ),
        Cause(
            "memory-limit", "memory limit", "The memory limit", "limit",
            "a higher limit: memory.max, the pod's limits.memory, docker --memory",
        ),
        Cause(
            "read-back", "reading memory back", "Reading memory back", "swap",
            "more memory, or fewer programs; vmstat 1 shows what is swapped",
        ),
        Cause(
            "reclaim", "memory reclaim", "Memory reclaim", "reclaim",
            "more free memory; vm.min_free_kbytes, so that kswapd starts earlier",
        ),
        Cause(
            "compaction", "memory compaction", "Memory compaction", "compaction",
            "defer into /sys/kernel/mm/transparent_hugepage/defrag",
        ),
        Cause(
            "numa-balancing", "NUMA balancing", "NUMA balancing", "NUMA",
            "sysctl kernel.numa_balancing=0, and numactl to place the program",
        ),
        Cause(
            "idle-injection", "idle injection", "Idle injection", "idle",
            "whoever injects it: thermald, intel_powerclamp, /sys/class/thermal/cooling_device*",
        ),
        Cause(
            "idle-exit", "leaving idle states", "Leaving idle states", "exits",
            "perftop wake measures it; cpupower idle-set --disable-by-latency 20, PM QoS",
        ),
        Cause("sibling", "sibling", "A sibling", "sibling"),
        Cause("scheduler", "scheduler", "Waiting for a CPU", "waits"),
        Cause("package", "package", "A busy package", "package"),
        Cause("memory", "memory", "Saturated memory", "memory"),
        Cause("cache", "L3 cache", "A crowded L3", "L3"),
        Cause("unknown", "cause unknown", "An unknown cause"),
        Cause("-", ""),
    )
}  # fmt: skip
INTERRUPT_REMEDIES = {
    "threshold apic": "replace the memory that reports errors: ras-mc-ctl --errors, rasdaemon",
    "machine check": "replace the memory that reports errors: ras-mc-ctl --errors, rasdaemon",
    "thermal event": "cooling: fans, air flow, dust; or fewer busy cores",
    "tlb shootdowns": "fewer munmap, mprotect and madvise in programs with many threads",
}
"""Remedies for interrupts that no device sends, by a prefix of the interrupt's name."""
LOG_CLUES = {
    "split-lock": ("it took a split lock, and waits 10 ms for each", CAUSES["split-lock"].remedy),
    "memory-errors": (
        "this memory reports errors that were corrected, each an interrupt",
        "replace it: ras-mc-ctl --errors, rasdaemon",
    ),
}
"""Clues in the kernel's log, by kind of message: meaning and remedy."""


class CostlySetting(NamedTuple):
    """A setting of the machine that slows programs down by an amount that no counter shows."""

    key: str
    """Key of the setting in hello."""
    values: tuple[str, ...]
    """Values of the setting that cost time; (): all values."""
    text: str
    remedy: str
    kernel_only: bool = True
    """Whether the setting slows down only kernel code."""
    price_key: str = ""
    """Key in hello of the measured duration of a call that this setting slows down; '' if none."""
    price_text: str = ""
    """Text on the measured duration, shown to the user."""
    baseline_price_us: float = 0.0
    work: tuple[str, str] = "", ""
    """The kernel work that the setting causes: a key of KERNEL_WORK, and a function's prefix."""


BANDWIDTH_CAPS = CostlySetting(
    "bandwidth_caps", (),
    "resctrl caps memory bandwidth ({}), on Intel also of the siblings of these CPUs",
    "MB in /sys/fs/resctrl/GROUP/schemata; keep siblings in one group", kernel_only=False,
)  # fmt: skip
COSTLY_SETTINGS = (
    CostlySetting(
        "clocksource", ("hpet", "acpi_pm", "refined-jiffies"),
        "the clock source {}, a device that takes about a microsecond to read",
        "boot with clocksource=tsc tsc=reliable, if the TSC can be trusted",
        price_key="clock_read", price_text="; a read takes {} here, of the TSC 0.03 µs",
        baseline_price_us=0.03, work=("clock", ""),
    ),
    CostlySetting(
        "frequency_driver", ("pcc-cpufreq",), "the driver {}, in which all CPUs share a lock",
        "blacklist pcc_cpufreq; let the OS control power in the firmware's setup",
        work=("lock", "pcc_"),
    ),
    CostlySetting(
        "costly_mitigations", (), "mitigations that slow each system call down ({})",
        "a newer CPU; mitigations=off only where all code is trusted",
        price_key="system_call", price_text="; the shortest takes {} here, without them 0.1 µs",
        baseline_price_us=0.1, work=("mitigation", ""),
    ),
    BANDWIDTH_CAPS,
)  # fmt: skip
KERNEL_WORK = {
    "clock": ("reading a slow clock source", ""),
    "lock": (
        "spinning for a lock of the kernel in {}",
        "fewer threads in that call at once; perf lock contention -ab names the lock",
    ),
    "mitigation": ("in mitigations, when the kernel is entered or left", ""),
    "entry": (
        "at the entries and exits of system calls",
        "fewer system calls: strace -cf counts them",
    ),
    "": ("in the kernel's function {}", "perf record -g -e cpu-clock:k, which shows its callers"),
}
"""Kinds of kernel work that samples show: a text to which the function is added, and a remedy. A
remedy in COSTLY_SETTINGS has priority."""
WASTED_KERNEL_WORK = {"clock", "lock", "mitigation"}
"""Kinds of kernel work whose result no program needs, so that all of it is a loss."""
CLOCK_CAPS: dict[str, tuple[str, str]] = {
    "scaling_max_freq": ("The limit scaling_max_freq", "cpupower frequency-set -u CLOCK"),
    "turbo off": ("Disabled turbo", "turbo on: 0 into /sys/devices/system/cpu/*pstate/no_turbo"),
    "turbo off, config-TDP": ("Disabled turbo (config-TDP)", ""),
    "max_perf_pct": (
        "The limit max_perf_pct", "100 into /sys/devices/system/cpu/*pstate/max_perf_pct"
    ),
}  # fmt: skip
"""Clock limits that a user or program can set, by name: subject of a sentence, and remedy."""


def cause_of(key: str) -> Cause:
    """Returns the cause with this key. A key that this version does not know becomes the name."""
    return CAUSES.get(key) or Cause(key, key, CAUSES["unknown"].subject)


# --- Episodes: states of certain CPUs, with a start and an end. Evidence from detectors consists of
# numbers, whose keys end with the unit, and of types from `confidence`. `output/sentences.py` turns
# it into text.


def severity_rank(kind: str) -> int:
    """Returns the rank of a kind by severity, worst first. Unknown kinds are last."""
    return [*KINDS, kind].index(kind)


def group_of(kind: str, cause: str) -> tuple[str, str]:
    """Returns the kind and cause that episodes of this kind and cause are counted as. Two detectors
    report steal by the hypervisor."""
    is_steal = kind == "steal" or (kind, cause) == ("neighbour", STEAL_CAUSE[1])
    return STEAL_CAUSE if is_steal else (kind, cause)


@dataclass(slots=True)
class Episode:
    kind: str
    cpus: list[int]
    start_ns: int  # raw time
    end_ns: int | None = None  # None while the episode runs
    depth: float | None = None  # its meaning: `Kind.depth`
    cause: str = "unknown"
    evidence: dict[str, Any] = field(default_factory=dict)
    confidence: Confidence = "unknown"
    """Confidence in the cause, from `confidence.confidence`."""
    is_calm: bool = False
    """Whether the episode is absent from the newest samples. If that continues, it ends."""

    @property
    def lost_share(self) -> float:
        """Share of each CPU's work that is lost, from 0 to 1; 0 where unknown."""
        depth, kind = self.depth or 0.0, KINDS.get(self.kind)
        measure = kind.depth if kind else ""
        if measure == "share":
            return depth
        ceiling_hz = self.evidence.get("ceiling_hz", 0)
        return depth / ceiling_hz if measure == "hz" and ceiling_hz else 0.0

    def span_s(self, since_ns: int, until_ns: int) -> float:
        """Returns how many seconds of the episode are between two raw times."""
        end_ns = until_ns if self.end_ns is None else min(self.end_ns, until_ns)
        return max(0, end_ns - max(self.start_ns, since_ns)) / 1e9

    def lost_s(self, until_ns: int, since_ns: int = 0) -> float:
        """Returns the CPU seconds lost between two raw times: lost share * CPUs * duration."""
        return self.lost_share * len(self.cpus) * self.span_s(since_ns, until_ns)
