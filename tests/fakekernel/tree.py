"""The files of a machine in /dev/cpu, /proc and /sys, in the format of its kernel."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from fakekernel.activity import HALT, IDLE, KERNEL, STEAL, USER, Piece, Steps
from fakekernel.machine import Machine, Processor
from fakekernel.nodes import Cpuid, Dir, Msr
from perfprobe.sources.sim.stages import Integral

CPU = "sys/devices/system/cpu"
TICK_NS = 10_000_000
BOOT_ID = "00000000-0000-4000-8000-00000000fa4e"
FLAGS = "fpu tsc msr apic cx8 sep cmov acpi mmx fxsr sse sse2 ht rep_good constant_tsc nonstop_tsc"
C_STATES = (("POLL", 0, 0), ("C1", 1, 2), ("C6", 6, 133))  # name, state, exit latency in µs


def build(machine: Machine) -> Dir:
    root = Dir()
    for processor in machine.cpus:
        _cpu(root, machine, processor)
        _cpufreq(root, machine, processor)
        _cpuidle(root, processor)
        update_devices(root, machine, processor)
    _package_wide(root, machine)
    _machine_wide(root, machine)
    _proc(root, machine)
    return root


def update_devices(root: Dir, machine: Machine, processor: Processor) -> None:
    """Adds or removes the device files of a CPU that goes online or offline."""
    at = f"dev/cpu/{processor.cpu}"
    if not processor.online:
        root.remove(at)
        return
    if machine.spec.msr:
        name = machine.spec.open_error
        root.put(f"{at}/msr", Msr(processor, getattr(errno, name) if name else 0))
    root.put(f"{at}/cpuid", Cpuid(processor))


def cpu_list_text(cpus: list[int]) -> str:
    """A list of CPUs in the kernel's format: 0-3,8."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) + "\n"


def _online(machine: Machine, package: int | None = None, core: int | None = None) -> list[int]:
    return [
        p.cpu
        for p in machine.cpus
        if p.online and package in (None, p.place.package) and core in (None, p.place.core)
    ]


def _cpu(root: Dir, machine: Machine, processor: Processor) -> None:
    cpu, place = processor.cpu, processor.place
    at = f"{CPU}/cpu{cpu}"
    if cpu:
        root.text(f"{at}/online", lambda: f"{int(processor.online)}\n")

    def siblings() -> str:
        return cpu_list_text(_online(machine, place.package, place.core))

    def package() -> str:
        return cpu_list_text(_online(machine, place.package))

    topology: dict[str, str | Callable[[], str]] = {
        "physical_package_id": f"{place.package}\n",
        "die_id": "0\n",
        "core_id": f"{place.core}\n",
        "core_cpus_list": siblings,
        "thread_siblings_list": siblings,
        "package_cpus_list": package,
        "core_siblings_list": package,
    }
    for name, content in topology.items():
        root.text(f"{at}/topology/{name}", content)
    for index, level, kind, shared in (
        (0, 1, "Data", siblings),
        (2, 2, "Unified", siblings),
        (3, 3, "Unified", package),
    ):
        root.text(f"{at}/cache/index{index}/level", f"{level}\n")
        root.text(f"{at}/cache/index{index}/type", f"{kind}\n")
        root.text(f"{at}/cache/index{index}/shared_cpu_list", shared)
        ident = place.package if level == 3 else place.core
        root.text(f"{at}/cache/index{index}/id", f"{ident}\n")
    if not machine.model.amd:
        for what in ("core", "package"):
            for name in ("throttle_count", "throttle_max_time_ms", "throttle_total_time_ms"):
                root.text(f"{at}/thermal_throttle/{what}_{name}", "0\n")


def _cpufreq(root: Dir, machine: Machine, processor: Processor) -> None:
    model = machine.model
    at = f"{CPU}/cpu{processor.cpu}/cpufreq"
    top = f"{model.turbo_hz // 1000}\n"
    for name, content in (
        ("scaling_driver", "acpi-cpufreq\n" if model.amd else "intel_pstate\n"),
        ("scaling_governor", "performance\n"),
        ("cpuinfo_max_freq", top),
        ("scaling_max_freq", top),
    ):
        root.text(f"{at}/{name}", content)
    if model.hwp:
        root.text(f"{at}/base_frequency", f"{model.base_mhz * 1000}\n")
    root.text(
        f"{at}/scaling_cur_freq", lambda: f"{processor.core.piece(machine.now()).hz // 1000}\n"
    )


def _cpuidle(root: Dir, processor: Processor) -> None:
    now, lp = processor.machine.now, processor.place.thread
    for i, (name, state, latency) in enumerate(C_STATES):
        at = f"{CPU}/cpu{processor.cpu}/cpuidle/state{i}"
        time, usage = processor.core.idle_counts(lp, state)
        root.text(f"{at}/name", f"{name}\n")
        root.text(f"{at}/latency", f"{latency}\n")
        root.text(f"{at}/disable", "0\n")
        root.text(f"{at}/time", partial(_counted, time, now, 1000))
        root.text(f"{at}/usage", partial(_counted, usage, now, 1))


def _counted(count: Steps, now: Callable[[], int], unit: int) -> str:
    return f"{count(now()) // unit}\n"


def _listed_online(machine: Machine, package: int) -> str:
    return cpu_list_text(_online(machine, package))


def _package_wide(root: Dir, machine: Machine) -> None:
    for package in range(machine.spec.packages):
        root.text(
            f"sys/devices/system/node/node{package}/cpulist",
            partial(_listed_online, machine, package),
        )


def _machine_wide(root: Dir, machine: Machine) -> None:
    everyone = cpu_list_text([p.cpu for p in machine.cpus])
    root.text(f"{CPU}/possible", everyone)
    root.text(f"{CPU}/present", everyone)
    root.text(f"{CPU}/online", lambda: cpu_list_text(_online(machine)))
    root.text(f"{CPU}/smt/active", lambda: f"{int(_smt(machine))}\n")
    root.text(f"{CPU}/smt/control", "on\n" if machine.threads > 1 else "notsupported\n")
    root.text(f"{CPU}/cpuidle/current_driver", "intel_idle\n")
    if machine.model.amd:
        root.text(f"{CPU}/cpufreq/boost", "1\n")
    else:
        root.text(f"{CPU}/intel_pstate/status", "active\n")
        root.text(f"{CPU}/intel_pstate/no_turbo", "0\n")


def _smt(machine: Machine) -> bool:
    places = [(p.place.package, p.place.core) for p in machine.cpus if p.online]
    return len(places) > len(set(places))


def _proc(root: Dir, machine: Machine) -> None:
    ticks = {p.cpu: _ticks(p) for p in machine.cpus}
    root.text("proc/cpuinfo", lambda: "\n".join(_record(p) for p in machine.cpus if p.online))
    root.text("proc/stat", lambda: _stat(machine, ticks))
    root.text("proc/loadavg", "1.00 1.00 1.00 1/100 1000\n")
    root.text("proc/sys/kernel/hostname", "fake\n")
    root.text("proc/sys/kernel/osrelease", "6.12.0-fake\n")
    root.text("proc/sys/kernel/random/boot_id", f"{BOOT_ID}\n")
    root.text("proc/sys/kernel/nmi_watchdog", "0\n")


def _record(processor: Processor) -> str:
    model, place = processor.machine.model, processor.place
    family, number, stepping = model.signature
    flags = FLAGS + " nopl xtopology aperfmperf" + ("" if model.amd else " arch_perfmon")
    if processor.machine.spec.kvm:
        flags += " hypervisor"
    khz = processor.core.piece(processor.machine.now()).hz / 1e6
    rows = {
        "processor": processor.cpu,
        "vendor_id": "AuthenticAMD" if model.amd else "GenuineIntel",
        "cpu family": family,
        "model": number,
        "model name": model.brand,
        "stepping": stepping,
        "cpu MHz": f"{khz:.3f}",
        "physical id": place.package,
        "siblings": len(_online(processor.machine, place.package)),
        "core id": place.core,
        "cpu cores": place.cores,
        "flags": flags,
    }
    return "".join(
        f"{name}{'' if len(name) > 7 else chr(9)}\t: {value}\n" for name, value in rows.items()
    )


def _ticks(processor: Processor) -> dict[str, Integral]:
    """Time of an LP in each mode, in ticks of 10 ms."""
    lp = processor.place.thread
    return {
        modes: processor.core.integral(_in(lp, modes), 1, TICK_NS)
        for modes in (USER + HALT, KERNEL, IDLE, STEAL)
    }


def _in(lp: int, modes: str) -> Callable[[Piece], int]:
    return lambda piece: piece.modes[lp] in modes


def _stat(machine: Machine, ticks: dict[int, dict[str, Integral]]) -> str:
    t = machine.now()
    rows: list[tuple[str, list[int]]] = []
    for cpu in _online(machine):
        user, system, idle, steal = (line(t) for line in ticks[cpu].values())
        rows.append((f"cpu{cpu}", [user, 0, system, idle, 0, 0, 0, steal, 0, 0]))
    total = [sum(column) for column in zip(*(fields for _, fields in rows), strict=True)]
    text = "".join(f"{name} {' '.join(map(str, f))}\n" for name, f in [("cpu ", total), *rows])
    return text + "intr 0\nctxt 0\nbtime 1700000000\nprocesses 1000\nprocs_running 1\n"
