"""The hello of a simulated machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import perfprobe
from perfprobe.errors import Usage
from perfprobe.frozen import frozen
from perfprobe.sources.sim import guest
from perfprobe.sources.sim import machine as hw
from perfprobe.sources.sim.machine import Machine
from perfprobe.sources.sim.spec import Spec
from perfprobe.wire import Block, Cpu, Hello, Identity, Missing, Multiplier, Rate

EPOCH_S = 1_700_000_000
RAW_NS = 86_400_000_000_000
Select = Collection[int] | Callable[[list[Cpu]], Collection[int] | None] | None


@frozen
class Clock:
    """The start of the simulation on all clocks."""

    wall_ns: int
    raw_ns: int
    monotonic_ns: int

    @classmethod
    def of(cls, spec: Spec) -> Clock:
        if spec.reproducible:
            epoch = EPOCH_S if spec.epoch is None else spec.epoch
            return cls(epoch * 1_000_000_000, RAW_NS, time.monotonic_ns())
        raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        return cls(time.time_ns(), raw_ns, time.monotonic_ns())


def hello_of(
    spec: Spec, machine: Machine, clock: Clock, sample_ns: int, blocks: list[Block], select: Select
) -> Hello:
    topology = [machine.row(cpu) for cpu in range(machine.cpus)]
    smt, multipliers, missing = _smt(machine)
    hello = Hello(
        perftop=perfprobe.__version__,
        source=f"sim:{spec.scenario}",
        host="sim",
        kernel="simulated",
        wall_ns=clock.wall_ns,
        raw_ns=clock.raw_ns,
        sample_ns=sample_ns,
        topology=topology,
        cores=[machine.threads(core) for core in range(machine.cores)],
        packages=[machine.package_cpus(package) for package in range(machine.packages)],
        blocks=blocks,
        identity=Identity("GenuineIntel", 6, 0x55, 4, "perftop sim · Xeon-like", "0x1"),
        tsc=hw.tsc(clock.raw_ns),
        tsc_hz=Rate(float(hw.TSC_HZ), "sim", 0.0),
        base_hz=Rate(hw.BASE_MHZ["P"] * 1e6, "sim", 0.0),
        multipliers=multipliers,
        smt_methods=smt,
        selected=_selected(topology, select),
        missing=missing,
    )
    return guest.introduced(hello) if machine.guest else hello


def _smt(machine: Machine) -> tuple[list[str], list[Multiplier], list[Missing]]:
    if machine.smt == 1:
        return ["single"], [], []
    key = "one_thread" if machine.smt == 2 else "any_thread"
    kind = "P" if machine.hybrid else None
    multipliers = [
        Multiplier(key, float(hw.TICK_TSC), "CPUID 15H 168/2", kind),
        Multiplier(key, 1.0, "at the rate of the TSC", kind),
    ]
    methods = ["one-thread", "bounds"] if machine.smt == 2 else ["any-thread"]
    missing = []
    if machine.hybrid:
        small = list(range(machine.p_cores, machine.cores))
        missing = [Missing(key, "E cores have one thread", None, small)]
    return methods, multipliers, missing


def _selected(topology: list[Cpu], select: Select) -> list[int] | None:
    chosen = select(topology) if callable(select) else select
    if chosen is None:
        return None
    unknown = sorted(set(chosen) - {row.cpu for row in topology})
    if unknown:
        raise Usage(f"sim: there is no CPU {unknown[0]}, they are 0-{len(topology) - 1}")
    return sorted(set(chosen))
