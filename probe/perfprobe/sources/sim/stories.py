"""Scripts with many acts: a build in a guest, and a day of a machine in two minutes."""

from __future__ import annotations

import copy

from perfprobe.frozen import replace
from perfprobe.sources.sim.script import LAMMPS, NGINX, STREAM, Load, Member, Script, Stage

CONFIGURE = Load("configure", 320, 240, wander=500, on=850, kernel=420, iowait=150, steal=5)
BUILD = Load("cc1plus", 955, 50, kernel=150, steal=5)
LINK = Load("ld", 460, 160, wander=300, kernel=340, iowait=500, steal=5)
DATABASE = Load("postgres", 430, 180, wander=350, kernel=290, iowait=300, steal=5)
BACKUP = Load("postgres", 700, 120, wander=150, kernel=360, iowait=350, steal=5)
COMPILERS = (
    Member("cc1plus", 500, 380),
    Member("cc1plus", 300, 520),
    Member("as", 110, 210),
    Member("make", 40, 90),
)
WRITERS = Member("postgres", 620, 12), Member("postgres", 330, 5)
WAITING = Member("postgres", 480, 160), Member("postgres", 260, 100), Member("restic", 220, 110)
WAIT = (160 + 100) / (160 + 100 + 480 + 260)
"""Share of the time in which a writer wants to run that it waits, while the backup runs."""


def guest(script: Script) -> None:
    """A build on the CPUs with even numbers, a database on the others; the hypervisor takes time
    from the build twice, and a backup makes the database wait."""
    machine = script.machine
    build, data = range(0, machine.cpus, 2), range(1, machine.cpus, 2)
    quiet = script.stage(7)
    quiet.run(build, CONFIGURE, Member("configure", 640, 20), Member("make", 120, 30))
    quiet.run(data, DATABASE, *WRITERS)
    quiet.pressure = (20, 0, 30)
    works = script.stage(20, like=quiet)
    works.run(build, BUILD, *COMPILERS)
    works.pressure = (390, 0, 30)
    _robbed(script, works, 6, 90)
    script.stage(11, like=works)
    links = script.stage(4, like=quiet)
    links.run(build, LINK, Member("ld", 940))
    links.pressure = (30, 0, 240)
    script.stage(3, like=quiet)
    backup = script.stage(12, like=works)
    backup.run(data, BACKUP, *WAITING)
    backup.pressure = (520, 0, 180)
    script.episode("neighbour", "scheduler", data, WAIT, watch="postgres")
    script.stage(8, like=works)
    _robbed(script, works, 6, 140)
    script.stage(3, like=works)


def _robbed(script: Script, like: Stage, seconds: float, steal: int) -> None:
    """The hypervisor takes so many per mille of the CPUs that build, for another guest."""
    machine = script.machine
    cpus = range(0, machine.cpus, 2)
    stage = script.stage(seconds, like=like)
    busy = replace(BUILD, duty=990 - steal, jitter=10, steal=steal)
    stage.run(cpus, busy, *COMPILERS)
    stage.pressure = (560, 0, 30)
    script.episode("steal", "hypervisor", cpus, steal / 1000)
    script.episode("neighbour", "hypervisor", cpus, steal / 1000)


CRON = Load("postgres", 240, 160, wander=600, ipc=820, kernel=310, iowait=180)
LOST, DROP_MHZ = 0.31, 620


def demo(script: Script) -> None:
    """Two minutes in which each view has something to show."""
    machine = script.machine
    first = list(range(machine.cores))  # the first thread of each core
    calm = script.stage(8)
    calm.run(first[::4], NGINX)
    calm.run(first[2::4], CRON)
    job = _climb(script, calm, first)
    _noisy(script, job)
    script.stage(10, like=job)
    cores = script.stage(8.2, like=job).limit_power(0, DROP_MHZ)
    script.episode("turbo-drop", "power-pl1", cores, DROP_MHZ * 1e6)
    script.stage(12, like=job)
    _hot(script, job)
    script.stage(8, like=job)
    script.stage(12, like=calm)


def _climb(script: Script, calm: Stage, cpus: list[int]) -> Stage:
    """A job starts, and clocks of cores that slept take some 60 ms to come up. Returns the stage
    after that."""
    goal = copy.deepcopy(calm)
    goal.run(cpus, LAMMPS)
    script.climb(goal, [cpu for cpu in cpus if not calm.crews[cpu]])
    return script.stage(16, like=goal)


def _noisy(script: Script, job: Stage) -> None:
    """Somebody else starts on the siblings of every fourth core."""
    machine = script.machine
    victims = list(range(0, machine.cores, 4))
    others = [cpu for core in victims for cpu in machine.threads(core)[1:]]
    if others:
        stage = script.stage(18, like=job)
        stage.run(victims, replace(LAMMPS, ipc=round(LAMMPS.ipc * (1 - LOST))))
        stage.run(others, STREAM)
        script.episode("neighbour", "sibling", victims, LOST)


def _hot(script: Script, job: Stage) -> None:
    """A fan stops."""
    cores = script.stage(7, like=job).overheat(0, 99)
    cpus = [cpu for core in cores for cpu in script.machine.threads(core)]
    # The job has one thread of each core; the others are idle and lose nothing.
    script.episode("throttle", "thermal", cpus, 0.125 / script.machine.smt)
    script.episode("involuntary-halt", "modulation", cores, 0.125)
