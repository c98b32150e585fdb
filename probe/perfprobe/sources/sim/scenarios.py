"""The scenarios of simulated machines. Each function adds the stages and episodes of a scenario to
a Script (see script.py), for a machine of any size; the script repeats without end. The first CPU
of a core has the number of the core."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

from perfprobe.sources.sim.machine import SCENARIOS, SimMachine
from perfprobe.sources.sim.schedule import SMI_NS
from perfprobe.sources.sim.script import (
    CELL_NS,
    CELLS_PER_S,
    LAMMPS,
    NGINX,
    STREAM,
    THERMAL_BIT,
    Load,
    Script,
    Stage,
    TaskShare,
)

# --- the scenarios guest and demo -----------------------------------------------------------------

CONFIGURE = Load("configure", 320, 240, spread=500, active=850, kernel=420, iowait=150, steal=5)
BUILD = Load("cc1plus", 955, 50, kernel=150, steal=5)
LINK = Load("ld", 460, 160, spread=300, kernel=340, iowait=500, steal=5)
DATABASE = Load("postgres", 430, 180, spread=350, kernel=290, iowait=300, steal=5)
DUMP = Load("postgres", 700, 120, spread=150, kernel=360, iowait=350, steal=5)
COMPILERS = (
    TaskShare("cc1plus", 500, 380),
    TaskShare("cc1plus", 300, 520),
    TaskShare("as", 110, 210),
    TaskShare("make", 40, 90),
)
WRITERS = TaskShare("postgres", 620, 12), TaskShare("postgres", 330, 5)
WAITING = (
    TaskShare("postgres", 480, 160),
    TaskShare("postgres", 260, 100),
    TaskShare("restic", 220, 110),
)
WAIT = (160 + 100) / (160 + 100 + 480 + 260)
"""Share of the time that a "postgres" task waits for a CPU while the backup runs."""


def build_guest(script: Script) -> None:
    """A build on the CPUs with even numbers, a database on the others; the hypervisor takes time
    from the build twice, and a backup makes the database wait."""
    machine = script.machine
    build, data = range(0, machine.cpus, 2), range(1, machine.cpus, 2)
    quiet = script.add_stage(7)
    quiet.run(build, CONFIGURE, TaskShare("configure", 640, 20), TaskShare("make", 120, 30))
    quiet.run(data, DATABASE, *WRITERS)
    quiet.pressure = (20, 0, 30)
    building = script.add_stage(20, like=quiet)
    building.run(build, BUILD, *COMPILERS)
    building.pressure = (390, 0, 30)
    _add_steal(script, building, 90)
    script.add_stage(11, like=building)
    linking = script.add_stage(4, like=quiet)
    linking.run(build, LINK, TaskShare("ld", 940))
    linking.pressure = (30, 0, 240)
    script.add_stage(3, like=quiet)
    backup = script.add_stage(12, like=building)
    backup.run(data, DUMP, *WAITING)
    backup.pressure = (520, 0, 180)
    script.add_episode("neighbour", "scheduler", data, WAIT, watch="postgres")
    script.add_stage(8, like=building)
    _add_steal(script, building, 140)
    script.add_stage(3, like=building)


def _add_steal(script: Script, like: Stage, steal: int) -> None:
    """Adds a stage in which the hypervisor takes `steal` per mille of the CPUs that build."""
    cpus = range(0, script.machine.cpus, 2)
    stage = script.add_stage(6, like=like)
    busy = replace(BUILD, duty=990 - steal, jitter=10, steal=steal)
    stage.run(cpus, busy, *COMPILERS)
    stage.pressure = (560, 0, 30)
    script.add_episode("steal", "hypervisor", cpus, steal / 1000)
    script.add_episode("neighbour", "hypervisor", cpus, steal / 1000)


CRON = Load("postgres", 240, 160, spread=600, ipc=820, kernel=310, iowait=180)
LOST, DROP_MHZ = 0.31, 620


def build_demo(script: Script) -> None:
    """Two minutes of varying load, so that each view has something to show."""
    machine = script.machine
    first = list(range(machine.cores))
    calm = script.add_stage(8)
    calm.run(first[::4], NGINX)
    calm.run(first[2::4], CRON)
    # A job starts: clocks rise for about 60 ms.
    goal = copy.deepcopy(calm)
    goal.run(first, LAMMPS)
    script.add_climb(goal, [cpu for cpu in first if not calm.tasks[cpu]])
    job = script.add_stage(16, like=goal)
    # Another program runs on the siblings of every fourth core.
    victims = first[::4]
    siblings = [cpu for core in victims for cpu in machine.threads(core)[1:]]
    if siblings:
        shared = script.add_stage(18, like=job)
        shared.run(victims, replace(LAMMPS, ipc=round(LAMMPS.ipc * (1 - LOST))))
        shared.run(siblings, STREAM)
        script.add_episode("neighbour", "sibling", victims, LOST)
    script.add_stage(10, like=job)
    cores = script.add_stage(8.2, like=job).limit_power(0, DROP_MHZ)
    script.add_episode("turbo-drop", "power-pl1", cores, DROP_MHZ * 1e6)
    script.add_stage(12, like=job)
    cores = script.add_stage(7, like=job).overheat(0, 99)
    # The job runs on one thread of each core; the other threads are idle and lose nothing.
    cpus = [cpu for core in cores for cpu in machine.threads(core)]
    script.add_episode("throttle", "thermal", cpus, 0.125 / machine.smt)
    script.add_episode("involuntary-halt", "modulation", cores, 0.125)
    script.add_stage(8, like=job)
    script.add_stage(12, like=calm)


# --- scenarios ------------------------------------------------------------------------------------

HPL = Load("xhpl", 1000, ipc=2600, kernel=2, traffic=900)
POSTGRES = Load("postgres", 420, 160, spread=600, ipc=820, kernel=310, iowait=180, traffic=2200)
BACKUP = Load(
    "pg_basebackup",
    380,
    120,
    start=120,
    spread=480,
    ipc=640,
    kernel=420,
    iowait=220,
    traffic=2600,
)
COMPILE = Load("cc1plus", 960, 80, active=720, ipc=1250, kernel=90)
MPI = Load("mpi_rank", 900, 180, spread=120, ipc=1500, kernel=60)
AVX2 = Load("gemm_avx2", 1000, ipc=2300, kernel=2, license=1)
AVX512 = Load("gemm_avx512", 1000, ipc=1900, kernel=2, license=2)
TURBO_BIT = 12
CLOCK_CHANGE_NS = 8_500


def make_script(scenario: str, machine: SimMachine) -> Script:
    script = Script(machine)
    _SCRIPTS[scenario](script)
    return script


def build_idle(script: Script) -> None:
    script.add_stage(20).run([0], replace(NGINX, duty=60, jitter=60))
    script.add_stage(20)


def build_steady(script: Script) -> None:
    script.add_stage(30).run(range(script.machine.cpus), HPL)


def build_jitter(script: Script) -> None:
    script.late_ns = 3_000_000
    script.add_stage(10).run(range(script.machine.cpus), MPI)
    stage = script.add_stage(10)
    stage.run(range(script.machine.cpus), replace(MPI, duty=700, jitter=600))
    stage.wobble_mhz[:] = 90


def _add_mixed_loads(stage: Stage, variant: int) -> None:
    """Puts the loads of many users on a machine: every eight cores have all combinations of loads
    on two threads. `variant` selects one of two variants."""
    machine = stage.machine
    stage.run(machine.cpus_of(range(0, machine.cores, 8)), STREAM)
    stage.run(machine.cpus_of(range(1, machine.cores, 8)), STREAM if variant else LAMMPS)
    for core in (2, 3)[: 1 + variant]:
        stage.run(range(core, machine.cores, 8), LAMMPS)
    for thread in range(machine.smt):
        stage.run(machine.cpus_of(range(4, machine.cores, 8), thread), POSTGRES)
        stage.run(
            machine.cpus_of(range(5, machine.cores, 8), thread),
            (BACKUP, POSTGRES)[thread % 2],
        )
    stage.run(machine.cpus_of(range(6 - variant, machine.cores, 8), machine.smt - 1), COMPILE)
    stage.run(range(7, machine.cores, 8), NGINX)


def build_smt_mix(script: Script) -> None:
    for variant, seconds in enumerate((14, 10)):
        _add_mixed_loads(script.add_stage(seconds), variant)


def build_turbo_drop(script: Script) -> None:
    machine = script.machine
    calm = script.add_stage(8)
    calm.run(range(machine.cores), HPL)
    calm.limits[:, TURBO_BIT] = 10
    drop = script.add_stage(4.1, like=calm)
    cores = drop.limit_power(0, 620)
    drop.limits[0, TURBO_BIT] = 0
    script.add_episode("turbo-drop", "power-pl1", cores, 620e6)
    script.add_stage(7.9, like=calm)


def build_license(script: Script) -> None:
    machine = script.machine
    calm = script.add_stage(6)
    calm.run(range(machine.cores), HPL)
    wide = range(0, machine.cores, 3)
    # AVX2 code runs first, at its own SIMD level (licence), which does not lower the clock with
    # this many active cores.
    light = script.add_stage(5, like=calm)
    light.run(wide, AVX2)
    script.add_episode("license", "level", wide, 0.0)
    heavy = script.add_stage(9, like=calm)
    heavy.run(wide, AVX512)
    heavy.drop_mhz[wide] = 500
    script.add_episode("turbo-drop", "license", wide, 500e6)
    script.add_stage(4, like=calm)


def build_throttle(script: Script) -> None:
    machine = script.machine
    calm = script.add_stage(8)
    calm.run(range(machine.cpus), HPL)
    hot = script.add_stage(6, like=calm)
    cores = hot.overheat(0, 99)
    script.add_episode("throttle", "thermal", machine.cpus_of(cores), 0.125)
    script.add_episode("involuntary-halt", "modulation", machine.cpus_of(cores), 0.125)
    script.add_stage(6, like=calm)
    slow = script.add_stage(5, like=calm)
    slow.limits[0, THERMAL_BIT] = 10
    slow.hot_c[0] = 97
    slow.drop_mhz[cores] = 400
    script.add_episode("turbo-drop", "thermal", machine.cpus_of(cores), 400e6)
    script.add_stage(5, like=calm)


def build_neighbour(script: Script) -> None:
    machine = script.machine
    victims = range(0, machine.cores, 4)
    alone = script.add_stage(8)
    alone.run(victims, LAMMPS)
    if machine.smt > 1:
        shared = script.add_stage(10, like=alone)
        loser = replace(LAMMPS, ipc=round(LAMMPS.ipc * 0.69))
        shared.run(victims, loser)
        shared.run(machine.cpus_of(victims, 1), STREAM)
        script.add_episode("neighbour", "sibling", victims, 0.31)
    script.add_stage(8, like=alone)
    stolen_from = script.add_stage(8, like=alone)
    loser = replace(LAMMPS, duty=800, jitter=0, steal=200)
    stolen_from.run(victims, loser)
    script.add_episode("neighbour", "hypervisor", victims, 0.2)
    script.add_episode("steal", None, victims, 0.2)
    script.add_stage(4, like=alone)


def build_memory(script: Script) -> None:
    """Other programs saturate memory bandwidth twice, which slows down a job on its own cores."""
    machine = script.machine
    victims = range(0, machine.cores, 4)
    other_cores = [core for core in range(machine.cores) if core not in victims]
    alone = script.add_stage(9)
    alone.run(victims, LAMMPS)
    for seconds in (10, 6):
        slowed = script.add_stage(seconds, like=alone)
        if other_cores:
            loser = replace(LAMMPS, ipc=round(LAMMPS.ipc * 0.72))
            slowed.run(victims, loser)
            slowed.run(other_cores, STREAM)
            script.add_episode("neighbour", "memory", victims, 0.28)
        script.add_stage(6, like=alone)


def build_warmup(script: Script) -> None:
    machine = script.machine
    halves = [range(0, machine.cores, 2), range(1, machine.cores, 2)]
    script.add_stage(4)
    started: list[int] = []
    for half in halves:
        if not half:
            continue
        started += half
        goal = Stage(machine, 6)
        goal.run(started, HPL)
        script.add_climb(goal, half)
        script.add_stage(6, like=goal)
    script.add_stage(4)


def build_halts(script: Script) -> None:
    machine = script.machine
    calm = script.add_stage(5)
    calm.run(range(machine.cores), HPL)
    few_halts = script.add_stage(10, like=calm)
    _clock_changes(script, few_halts, range(0, machine.cores, 2), 850_000)
    script.add_stage(4, like=calm)
    many_halts = script.add_stage(6, like=calm)
    _clock_changes(script, many_halts, range(1, machine.cores, 2) or [0], 425_000)
    script.add_stage(4, like=calm)
    firmware = script.add_stage(6, like=calm)
    firmware.smi_every = 3
    script.add_episode("smi", None, range(machine.cpus), float(6 * CELLS_PER_S // 3))
    share = SMI_NS / (3 * CELL_NS)
    script.add_episode("involuntary-halt", "smm", range(machine.cores), share)
    script.add_stage(5, like=calm)


def _clock_changes(script: Script, stage: Stage, cores: Sequence[int], period_ns: int) -> None:
    """Makes the clock of these cores alternate between two values, with a halt at each change."""
    stage.halt_period_ns[cores] = period_ns
    stage.halt_ns[cores] = CLOCK_CHANGE_NS
    stage.wobble_mhz[cores] = 100
    script.add_episode("involuntary-halt", "clock-change", cores, CLOCK_CHANGE_NS / period_ns)


def build_hotplug(script: Script) -> None:
    machine = script.machine
    calm = script.add_stage(8)
    _add_mixed_loads(calm, 0)
    last_cpu = machine.cpus - 1
    offline_stage = script.add_stage(8, like=calm)
    offline_stage.online[last_cpu] = machine.cpus == 1  # Linux keeps its last CPU online
    if machine.cpus > 1:
        script.add_episode("offline", None, [last_cpu], None)
    script.add_stage(10, like=calm)
    if machine.cpus > 1:
        script.add_episode("online", None, [last_cpu], None)
        script.episodes[-1] = replace(script.episodes[-1], end=16.0)


def build_hybrid(script: Script) -> None:
    machine = script.machine
    big, small = list(range(machine.p_cores)), list(range(machine.p_cores, machine.cores))
    first = script.add_stage(15)
    first.run(machine.cpus_of(big[::2]), LAMMPS)
    first.run(big[1::2], COMPILE)
    first.run(small[::2], COMPILE)
    first.run(small[1::4], POSTGRES)
    second = script.add_stage(15, like=first)
    second.run(big, HPL)
    second.run(small, STREAM)
    second.limits[0, TURBO_BIT] = 10


_SCENARIOS = (
    build_idle, build_steady, build_jitter, build_smt_mix, build_turbo_drop, build_license,
    build_throttle, build_neighbour, build_memory, build_warmup, build_halts, build_hotplug,
    build_hybrid, build_guest, build_demo,
)  # fmt: skip
_SCRIPTS: dict[str, Callable[[Script], None]] = dict(zip(SCENARIOS, _SCENARIOS, strict=True))
"""Functions that write the script, by name of the scenario."""
