"""Reads the CPUs of the machine and their cores, packages, caches and nodes from /sys, else /proc.

No content of a file raises an error. A core is identified by the kernel's ids of package, die and
core. Some kernels repeat core ids within a package, so the lists of siblings take precedence over
ids, but only where the lists of both siblings agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from perfprobe.cpu import files, identity
from perfprobe.errors import Unavailable
from perfprobe.wire import Cpu

HYBRID_PMUS = (("cpu_core", "P"), ("cpu_atom", "E"), ("cpu_lowpower", "L"))
"""The core PMUs of hybrids, with their core types."""

# Two CPUs with a lower ratio of capacities are of different core types. Favoured cores of one type
# differ by up to 8 %, P and E cores by at least 13 %.
_MAX_CAPACITY_RATIO = 0.9


def read_cpus(root: Path = Path("/")) -> list[Cpu]:
    """Returns a row for each present CPU, in ascending order; an empty list if the files below
    `root` list no CPUs."""
    base = f"{root}/{files.CPU_DIRECTORY}"
    lists = (files.read_cpu_list(f"{base}/{name}") for name in ("present", "possible", "online"))
    present = (
        next(filter(None, lists), None)
        or files.numbered_entries(base, "cpu")
        or sorted(_proc_stat_cpus(root))
        or sorted({cpu for cpu, _, _ in identity.cpu_ids(root)})
    )
    online = set(files.read_cpu_list(f"{base}/online"))
    if not online:
        running = _proc_stat_cpus(root)  # /proc/stat lists online CPUs only
        for cpu in present:
            state = files.read_number(f"{base}/cpu{cpu}/online")
            if state == 1 or (state is None and (not running or cpu in running)):
                online.add(cpu)
    known_cpus = frozenset(present)
    rows = [_read_cpu(base, cpu, cpu in online, known_cpus) for cpu in present]
    if not any(row.siblings or row.core is not None for row in rows):
        ids = {cpu: (package, core) for cpu, package, core in identity.cpu_ids(root)}
        for index, row in enumerate(rows):
            package, core = ids.get(row.cpu, (row.package, None))
            rows[index] = replace(row, package=package, core=core)
    l3 = _l3_groups(base, rows)
    directory, nodes = f"{root}/sys/devices/system/node", dict[int, int]()
    for node in files.numbered_entries(directory, "node"):
        for cpu in files.read_cpu_list(f"{directory}/node{node}/cpulist"):
            nodes.setdefault(cpu, node)
    for cpu in present:
        if cpu not in nodes and (links := files.numbered_entries(f"{base}/cpu{cpu}", "node")):
            nodes[cpu] = links[0]
    types = _core_types(root, base, rows)
    rows = [
        replace(row, l3=l3.get(row.cpu), node=nodes.get(row.cpu), type=types.get(row.cpu))
        for row in rows
    ]
    return _with_thread_numbers(rows)


def require_cpus(root: Path = Path("/")) -> list[Cpu]:
    """Like `read_cpus`, but raises Unavailable if no CPU is found."""
    if rows := read_cpus(root):
        return rows
    raise Unavailable(f"no CPUs can be found under {root}: there is no readable /proc or /sys")


def cores(rows: Sequence[Cpu]) -> list[list[int]]:
    """Returns the CPUs of each core, in order of (package, die, core).

    Every CPU that is online, or whose siblings or core id the kernel reports, is in exactly one
    core, even if the lists are garbled. Other offline CPUs are in no core.
    """
    by_cpu = {row.cpu: row for row in rows}
    possible_siblings = _siblings_by_cpu(by_cpu)

    def may_share_core(a: Cpu, b: Cpu) -> bool:  # no core spans packages or dies
        pairs = ((a.package, b.package), (a.die, b.die))
        return all(x is None or y is None or x == y for x, y in pairs)

    def sort_key(group: list[int]) -> tuple[tuple[bool, int], ...]:
        rows = [by_cpu[cpu] for cpu in group]
        ids = [[row.package for row in rows], [row.die for row in rows], [row.core for row in rows]]
        return (*(_none_last_key(_first_known(numbers)) for numbers in ids), (False, group[0]))

    grouped_cpus: set[int] = set()
    groups: list[list[int]] = []
    for cpu in sorted(possible_siblings):
        if cpu in grouped_cpus:
            continue
        group = [cpu]
        for sibling in sorted(possible_siblings[cpu] - grouped_cpus):
            if all(may_share_core(by_cpu[sibling], by_cpu[other]) for other in group):
                group.append(sibling)
        grouped_cpus.update(group)
        groups.append(group)
    return sorted(groups, key=sort_key)


def packages(rows: Sequence[Cpu]) -> list[list[int]]:
    """Returns the CPUs of each package, in order; CPUs of an unknown package (id -1) are last."""
    by_cpu = {row.cpu: row for row in rows}
    groups = cores(rows)
    grouped_cpus = {cpu for group in groups for cpu in group}
    groups += [[row.cpu] for row in rows if row.package is not None and row.cpu not in grouped_cpus]
    cpus_by_package: dict[int | None, list[int]] = {}
    for group in groups:
        package = _first_known(by_cpu[cpu].package for cpu in group)
        cpus_by_package.setdefault(package, []).extend(group)
    return [sorted(cpus_by_package[key]) for key in sorted(cpus_by_package, key=_none_last_key)]


def _proc_stat_cpus(root: Path) -> set[int]:
    text = files.read_head(f"{root}/proc/stat", files.MAX_LARGE_BYTES)
    return {int(n) for n in re.findall(r"^cpu([0-9]{1,5}) ", text, re.MULTILINE)}


# --- cores ---------------------------------------------------------------------------------------


def _read_cpu(base: str, cpu: int, online: bool, known_cpus: frozenset[int]) -> Cpu:
    directory = f"{base}/cpu{cpu}/topology"
    siblings: list[int] = []
    for name in ("core_cpus_list", "thread_siblings_list"):  # newer kernels have the first name
        listed = files.read_cpu_list(f"{directory}/{name}")
        if cpu in listed:
            siblings = [sibling for sibling in listed if sibling in known_cpus]
            break
    return Cpu(
        cpu,
        online,
        package=files.read_number(f"{directory}/physical_package_id"),
        die=files.read_number(f"{directory}/die_id"),
        core=files.read_number(f"{directory}/core_id"),
        siblings=siblings,
    )


def _with_thread_numbers(rows: list[Cpu]) -> list[Cpu]:
    """Returns the rows with each CPU's number within its core as `thread`, and with `siblings`
    reduced to CPUs of that core."""
    by_cpu = {row.cpu: row for row in rows}
    for group in cores(rows):
        for thread, cpu in enumerate(group):
            row = by_cpu[cpu]
            if row.online:
                siblings = [sibling for sibling in row.siblings if sibling in group]
                by_cpu[cpu] = replace(row, thread=thread, siblings=siblings or group)
            elif row.core is not None:
                by_cpu[cpu] = replace(row, thread=thread)
    return [by_cpu[row.cpu] for row in rows]


def _siblings_by_cpu(by_cpu: dict[int, Cpu]) -> dict[int, set[int]]:
    """Returns the possible siblings of each CPU: CPUs that neither list of siblings excludes."""
    cpus_by_core_id: dict[tuple[int | None, ...], list[int]] = {}
    for row in by_cpu.values():
        if row.core is not None:
            cpus_by_core_id.setdefault((row.package, row.die, row.core), []).append(row.cpu)
    possible_siblings: dict[int, set[int]] = {}
    for row in by_cpu.values():
        if row.online or row.siblings or row.core is not None:
            possible_siblings.setdefault(row.cpu, set())
        listed = row.siblings
        if not listed and row.core is not None:
            listed = cpus_by_core_id[row.package, row.die, row.core]
        for cpu in listed:
            other_row = by_cpu.get(cpu)
            if other_row is None or other_row is row:
                continue
            # The kernel's lists of siblings omit offline CPUs.
            if not other_row.siblings or row.cpu in other_row.siblings or not row.online:
                possible_siblings.setdefault(row.cpu, set()).add(cpu)
                possible_siblings.setdefault(cpu, set()).add(row.cpu)
    return possible_siblings


def _none_last_key(number: int | None) -> tuple[bool, int]:
    return number is None, number or 0


def _first_known(numbers: Iterable[int | None]) -> int | None:
    return next((n for n in numbers if n is not None), None)


# --- caches, nodes, types ------------------------------------------------------------------------


def _l3_groups(base: str, rows: list[Cpu]) -> dict[int, int]:
    """Returns the id of each CPU's L3. The CPUs of an L3 are read once, from its first CPU."""
    package = {row.cpu: row.package for row in rows if row.online}
    groups: list[tuple[int | None, list[int]]] = []
    grouped_cpus: set[int] = set()
    unlisted_cpus: list[tuple[int, int | None]] = []
    for cpu, package_id in package.items():
        if cpu in grouped_cpus:
            continue
        caches = (f"{base}/cpu{cpu}/cache/index{i}" for i in (3, 2, 1, 0, 4))  # usually index3
        l3s = (cache for cache in caches if files.read_number(f"{cache}/level") == 3)
        kinds = {"Data", "Instruction"}
        cache = next((c for c in l3s if files.read_word(f"{c}/type") not in kinds), None)
        if cache is None:
            continue
        l3_id = files.read_number(f"{cache}/id")
        listed = files.read_cpu_list(f"{cache}/shared_cpu_list")
        if cpu not in listed:
            unlisted_cpus.append((cpu, l3_id))
            continue
        members = [m for m in listed if m not in grouped_cpus and package.get(m, -1) == package_id]
        grouped_cpus.update(members)
        groups.append((l3_id, members))
    for cpu, l3_id in unlisted_cpus:
        if cpu in grouped_cpus:
            continue
        for other, members in groups:
            if l3_id is not None and other == l3_id and package[members[0]] == package[cpu]:
                members.append(cpu)
                break
        else:
            groups.append((l3_id, [cpu]))
    # Some firmware uses the same ids in each package; the lowest CPU is then the L3's id.
    names = [min(members) if l3_id is None else l3_id for l3_id, members in groups]
    if len(set(names)) < len(names):
        names = [min(members) for _, members in groups]
    pairs = zip(names, groups, strict=True)
    return {cpu: name for name, (_, members) in pairs for cpu in members}


def _core_types(root: Path, base: str, rows: list[Cpu]) -> dict[int, str]:
    """Returns the core type of a hybrid's CPUs, from PMUs, else from capacities or base clocks."""
    types: dict[int, str] = {}
    for pmu, name in HYBRID_PMUS:
        for cpu in files.read_cpu_list(f"{root}/sys/devices/{pmu}/cpus"):
            types.setdefault(cpu, name)
    if types:
        return types
    for name in ("cpu_capacity", "cpufreq/base_frequency"):
        values = {
            row.cpu: files.read_number(f"{base}/cpu{row.cpu}/{name}") for row in rows if row.online
        }
        type_names = _type_names({value for value in values.values() if value})
        results = {cpu: type_names[value] for cpu, value in values.items() if value and type_names}
        if not results:
            continue
        thread_counts: dict[str, set[int]] = {}
        for row in rows:
            if row.cpu in results:
                thread_counts.setdefault(results[row.cpu], set()).add(len(row.siblings))
        first, *other_counts = thread_counts.values()
        # Core types of a hybrid also differ in threads per core. With Speed Select, CPUs of one
        # type differ in base clock.
        if name == "cpu_capacity" or all(first.isdisjoint(other) for other in other_counts):
            return results
    return {}


def _type_names(values: set[int]) -> dict[int, str]:
    """Returns the core type by capacity or base clock (P: largest) of two or three types."""
    largest_values: list[int] = []
    type_numbers: dict[int, int] = {}
    for value in sorted(values, reverse=True):
        if not largest_values or value < _MAX_CAPACITY_RATIO * largest_values[-1]:
            largest_values.append(value)
        type_numbers[value] = len(largest_values) - 1
    return {v: "PEL"[n] for v, n in type_numbers.items()} if 2 <= len(largest_values) <= 3 else {}
