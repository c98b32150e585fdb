"""Writes machines as trees of /proc and /sys files in a directory, in the format of their
kernels."""

from __future__ import annotations

import os
from pathlib import Path

CPU = "sys/devices/system/cpu"


def put(root: Path, path: str, content: str | bytes) -> None:
    """Writes a file and the directories above it. A tree has hundreds of files, so this makes no
    objects of pathlib."""
    file = f"{root}/{path}"
    data = content if isinstance(content, bytes) else content.encode()
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(file), exist_ok=True)  # noqa: PTH103, PTH120
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(descriptor, data)
    os.close(descriptor)


def write_cpu_lists(root: Path, present: str, online: str | None = None) -> None:
    put(root, f"{CPU}/possible", present + "\n")
    put(root, f"{CPU}/present", present + "\n")
    put(root, f"{CPU}/online", (present if online is None else online) + "\n")


def write_cpu(
    root: Path, number: int, package: int, core: int, siblings: str, die: int | None = 0
) -> None:
    at = f"{CPU}/cpu{number}/topology"
    put(root, f"{at}/physical_package_id", f"{package}\n")
    put(root, f"{at}/core_id", f"{core}\n")
    put(root, f"{at}/core_cpus_list", f"{siblings}\n")
    put(root, f"{at}/thread_siblings_list", f"{siblings}\n")
    if die is not None:
        put(root, f"{at}/die_id", f"{die}\n")


def write_l3(root: Path, number: int, shared: str, ident: int | None = None) -> None:
    """Writes the caches of a CPU: the L3, and a private L2 that must not be confused with it."""
    for index, level, name, cpus in ((2, 2, number, f"{number}"), (3, 3, ident, shared)):
        at = f"{CPU}/cpu{number}/cache/index{index}"
        put(root, f"{at}/level", f"{level}\n")
        put(root, f"{at}/type", "Unified\n")
        put(root, f"{at}/shared_cpu_list", f"{cpus}\n")
        if name is not None:
            put(root, f"{at}/id", f"{name}\n")


def write_node(root: Path, number: int, cpus: str) -> None:
    put(root, f"sys/devices/system/node/node{number}/cpulist", f"{cpus}\n")


def process(
    pid: int, ticks: int, cpu: int = 0, comm: bytes = b"job", threads: int = 1, start: int = 500,
    parent: int = 1, children: int = 0,
) -> bytes:  # fmt: skip
    """Returns /proc/PID/stat as the kernel prints it. `children`: ticks of ended children."""
    before = b"R %d 1 1 0 -1 4194304 95 0 0 0"
    after = b"12582912 210 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17"
    return b"%d (%b) %b %d %d %d %d 20 0 %d 0 %d %b %d 0 0 0 0 0\n" % (
        pid, comm, before % parent, ticks // 3, ticks - ticks // 3, children - children // 4,
        children // 4, threads, start, after, cpu,
    )  # fmt: skip


# --- machines -------------------------------------------------------------------------------------


def write_machine(root: Path, cores: int, threads: int = 1, packages: int = 1) -> None:
    """Writes packages of `cores` cores; the first threads of all cores have the first numbers."""
    every = cores * packages
    n = every * threads
    write_cpu_lists(root, f"0-{n - 1}" if n > 1 else "0")
    for number in range(n):
        first = number % every
        siblings = ",".join(map(str, range(first, n, every)))
        write_cpu(root, number, first // cores, first % cores, siblings)


def write_xeon(root: Path, smt: bool = True, cores: int = 24) -> None:
    """Writes two packages of `cores` cores. The second threads have the last numbers, 48-95 if
    there are 24 cores; without `smt` they are offline."""
    every = 2 * cores
    write_cpu_lists(root, f"0-{2 * every - 1}", f"0-{(2 if smt else 1) * every - 1}")
    for package in (0, 1):
        begin = package * cores
        low = f"{begin}-{begin + cores - 1}"
        both = f"{low},{begin + every}-{begin + every + cores - 1}"
        for first in range(begin, begin + cores):
            for n in (first, first + every) if smt else (first,):
                write_cpu(
                    root, n, package, first - begin, f"{first},{first + every}" if smt else f"{n}"
                )
                write_l3(root, n, both if smt else low, ident=package)
        write_node(root, package, both if smt else low)


def write_epyc(root: Path) -> None:
    """Writes two packages of 64 cores, 8 cores for each L3; second threads are CPUs 128-255."""
    write_cpu_lists(root, "0-255")
    for n in range(256):
        first = n % 128
        group = first // 8
        write_cpu(root, n, first // 64, first % 64, f"{first},{first + 128}")
        shared = f"{8 * group}-{8 * group + 7},{8 * group + 128}-{8 * group + 135}"
        write_l3(root, n, shared, ident=group)
    write_node(root, 0, "0-63,128-191")
    write_node(root, 1, "64-127,192-255")


def write_hybrid(root: Path, pmus: bool = True) -> None:
    """Writes 8 P cores with two threads (core ids 0, 4 … 28) and 16 E cores (ids 32-47)."""
    write_cpu_lists(root, "0-31")
    for n in range(32):
        first = n - n % 2
        if n < 16:
            write_cpu(root, n, 0, 2 * first, f"{first}-{first + 1}")
        else:
            write_cpu(root, n, 0, n + 16, f"{n}")
        write_l3(root, n, "0-31", ident=0)
    write_node(root, 0, "0-31")
    if pmus:
        put(root, "sys/devices/cpu_core/cpus", "0-15\n")
        put(root, "sys/devices/cpu_atom/cpus", "16-31\n")


def write_power_machine(root: Path) -> None:
    """Writes a POWER machine: packages 0 and 8 of 4 cores with 8 threads, caches without ids."""
    write_cpu_lists(root, "0-63")
    for n in range(64):
        first = n - n % 8
        write_cpu(root, n, 8 * (n // 32), 4 * (first // 4), f"{first}-{first + 7}", die=None)
        write_l3(root, n, f"{first}-{first + 7}")
    write_node(root, 0, "0-31")
    write_node(root, 8, "32-63")


def write_knl(root: Path) -> None:
    """Writes a Knights Landing: 72 cores with 4 threads each, no L3."""
    write_machine(root, 72, 4)
    write_node(root, 0, "0-287")
    write_node(root, 1, "")


def write_sparse(root: Path) -> None:
    """Writes two packages of 2 cores with 2 threads; CPUs 4-7 do not exist."""
    write_cpu_lists(root, "0-3,8-11")
    for n, package, core, siblings in (
        *((0, 0, 0, "0,8"), (1, 0, 1, "1,9"), (2, 1, 0, "2,10"), (3, 1, 1, "3,11")),
        *((8, 0, 0, "0,8"), (9, 0, 1, "1,9"), (10, 1, 0, "2,10"), (11, 1, 1, "3,11")),
    ):
        write_cpu(root, n, package, core, siblings)


def write_machine_with_offline_cpu(root: Path) -> None:
    """Writes 4 cores with 2 threads. CPU 5, the second thread of core 1, is offline and has no
    topology."""
    write_cpu_lists(root, "0-7", "0-4,6-7")
    for n in (0, 1, 2, 3, 4, 6, 7):
        write_cpu(root, n, 0, n % 4, "1" if n == 1 else f"{n % 4},{n % 4 + 4}")
        write_l3(root, n, "0-4,6-7", ident=0)
    put(root, f"{CPU}/cpu5/online", "0\n")
    write_node(root, 0, "0-4,6-7")


def write_arm_like_machine(root: Path) -> None:
    """Writes 4 CPUs without package numbers; each cluster of two CPUs repeats the core ids."""
    write_cpu_lists(root, "0-3")
    for n in range(4):
        write_cpu(root, n, -1, n % 2, f"{n}", die=-1)
        put(root, f"{CPU}/cpu{n}/cpu_capacity", "446\n" if n < 2 else "1024\n")


def write_cpuinfo_only(root: Path) -> None:
    """Writes 2 cores with 2 threads, but no /sys, as in some sandboxes."""
    records = [
        f"processor\t: {n}\nvendor_id\t: GenuineIntel\nphysical id\t: 0\ncore id\t\t: {n % 2}\n"
        for n in range(4)
    ]
    put(root, "proc/cpuinfo", "\n".join(records) + "\n")


def write_big_machine(root: Path) -> None:
    """Writes 256 CPUs: two packages of 64 cores, 16 cores for each L3, and four NUMA nodes."""
    write_machine(root, 64, 2, 2)
    for n in range(256):
        group = n % 128 // 16
        shared = f"{16 * group}-{16 * group + 15},{16 * group + 128}-{16 * group + 143}"
        write_l3(root, n, shared, ident=group)
        put(root, f"{CPU}/cpu{n}/cpu_capacity", "1024\n")
    for number in range(4):
        first = 32 * number
        write_node(root, number, f"{first}-{first + 31},{first + 128}-{first + 159}")
