"""Episodes of all kinds and causes, and their sentences."""

from __future__ import annotations

from typing import Any

from perfprobe.wire import Cpu
from perftop.model.confidence import ClockCap, CrowdedCpu, Hypervisor, SimdLevel, TaskOnCpu
from perftop.model.kinds import Episode
from perftop.output.sentences import sentence, text

S = 1_000_000_000
ALL = range(16)
STREAM = [TaskOnCpu(4032, "stream", 8), TaskOnCpu(4033, "stream", 9)]
LONG_NAME = "a-name-of-15-ch"
MANY_TASKS = [TaskOnCpu(n, f"{LONG_NAME}{n}", n) for n in range(5)]


def machine(packages: int = 2, cores: int = 4, threads: int = 2) -> list[Cpu]:
    """CPU numbers are those of all first threads, then of all second threads."""
    count = packages * cores
    return [
        Cpu(core + t * count, True, core // cores, 0, core % cores, t, 0, 0, None, [])
        for t in range(threads)
        for core in range(count)
    ]


PACKAGE = [0, 1, 2, 3, 8, 9, 10, 11]
LOW_CLOCK = {"busy_hz": 2.88e9, "ceiling_hz": 3.5e9}
CASES = [
    *(("turbo-drop", cause, PACKAGE, 0.62e9, LOW_CLOCK, [])
      for cause in ("power-pl1", "power-pl2", "power-ppt", "current", "thermal", "prochot", "vr",
                    "hwp", "license", "hypervisor", "governor", "unknown", "policy")),
    ("turbo-drop", "policy", PACKAGE, 1e9, {"cap": ClockCap("scaling_max_freq", 2e9)}, []),
    ("turbo-drop", "policy", ALL, 1e9, {"cap": ClockCap("turbo off, config-TDP", 2e9)}, []),
    ("turbo-drop", "license", [0, 8], 0.3e9, {"simd": SimdLevel(2, 0.8)}, []),
    *(("turbo-drop", "license", PACKAGE, 0.3e9, LOW_CLOCK | {key: STREAM}, [])
      for key in ("who", "self")),
    ("throttle", "thermal", PACKAGE, 0.021, {}, []),
    ("throttle", "prochot", PACKAGE, 0.0, {}, []),
    ("throttle", "thermal", [3], None, {"throttled_s": 0.8}, []),
    ("throttle", "modulation", [3], 0.5, {}, []),
    ("license", "level", [0, 8], 0.3e9, {"simd": SimdLevel(1, 0.8)}, []),
    ("license", "level", [0, 8], 0.0, {"simd": SimdLevel(2, 0.8)}, []),
    ("license", "level", [0, 8], None, {"simd": SimdLevel(2, 0.8)}, []),
    *(("involuntary-halt", cause, [5], 0.0113, {}, [])
      for cause in ("modulation", "hdc", "smm", "simd", "clock-change", "unknown")),
    ("neighbour", "sibling", [0, 2, 4, 6, 9, 11], 0.31, {"who": STREAM}, ["lmp"]),
    ("neighbour", "sibling", [0], 0.31, {"self": STREAM}, ["stream"]),
    ("neighbour", "sibling", [0], None, {}, []),
    *(("neighbour", cause, [0, 1], 0.28, who, names)
      for cause in ("sibling", "scheduler", "package", "memory", "cache", "hypervisor")
      for who in ({}, {"who": STREAM}) for names in ([], ["lmp"])),
    ("neighbour", "scheduler", [0], 0.061, {"who": [TaskOnCpu(1, "restic", 0)]}, ["lmp"]),
    ("neighbour", "scheduler", [0], 0.061, {"self": [CrowdedCpu(3, 0)]}, ["lmp"]),
    ("neighbour", "scheduler", [0], 0.061, {}, ["lmp"]),
    ("neighbour", "scheduler", [0], 0.061, {}, []),
    ("interrupt", "irq", [1], 0.2, {"line": "36 eth0"}, []),
    ("interrupt", "softirq", [1], 0.35, {"line": "NET_RX"}, []),
    ("interrupt", "softirq", [1], 0.35, {}, []),
    ("quota", "quota", [0], 0.5, {"owner": "pod 0a1b"}, []),
    ("stopped", "stopped", [1], None, {"stopped_by": "SIGSTOP"}, ["lmp"]),
    ("stopped", "split-lock", [1], None, {}, ["lmp"]),
    *(("memory-stall", cause, [0], 0.3, {}, [])
      for cause in ("memory-limit", "read-back", "reclaim", "compaction", "numa-balancing")),
    ("memory-stall", "memory-limit", [0], 0.3, {"owner": "pod 0a1b"}, []),
    ("neighbour", "hypervisor", [0], 0.138, {"who": Hypervisor("kvm")}, ["cc1plus", "as"]),
    ("steal", "hypervisor", [0], 0.138, {"ticks": 9}, ["cc1plus"]),
    ("steal", "hypervisor", [0], 0.1, {}, []),
    ("smi", "firmware", ALL, 200.0, {"SMIs_per_s": 50.0}, []),
    ("ramp", "-", [2, 10], 2.3e9, {"first_hz": 1.2e9, "steady_hz": 3.5e9, "steady_s": 0.14}, []),
    ("suspect", "inst, cycles", [3], None, {"samples": 3}, []),
    ("suspect", "time stamps", [3], None, {"samples": 3}, []),
    ("offline", "hotplug", [1], None, {}, []),
    ("online", "hotplug", [1], None, {}, []),
    ("mark", "-", [], None, {"label": "solve"}, []),
    ("neighbour", "package", [0, 2, 4, 6, 9, 11], 0.31, {"who": MANY_TASKS}, [LONG_NAME]),
    ("neighbour", "scheduler", [0, 2, 4, 6, 9, 11], 0.31, {"who": MANY_TASKS}, [LONG_NAME]),
]  # fmt: skip


def episode_of(case: tuple[Any, ...]) -> Episode:
    kind, cause, cpus, depth, evidence, _ = case
    return Episode(kind, [*cpus], S, None, depth, cause, dict(evidence))


def sentences(kind: str) -> str:
    """The sentences on the cases of a kind: in both tenses, and shorter ones."""
    lines = []
    for case in (case for case in CASES if case[0] == kind):
        wide: dict[str, Any] = {"when": "since 09:43:50", "max_length": 200}
        forms = wide, wide | {"past_tense": True}, *({"max_length": n} for n in (70, 50, 35, 25))
        parts = (sentence(machine(), [episode_of(case)], case[-1], **form) for form in forms)
        lines += [f"{case[1]}: {words}\n" for words in dict.fromkeys(map(text, parts))]
    return "".join(dict.fromkeys(lines))
