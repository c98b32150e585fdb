"""`perftop topology`: prints the machine as a text tree.

A regular run of cores is one line. For example, "cores 0-23   cpus 0-23 + 48-71" pairs each core
with the CPUs at its position in both lists; "(2 a core)" means that neighbouring CPUs share a core.
Irregular runs are listed core by core.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from perftop.base.text import count_noun, ranges
from perftop.verbs import machine, options
from perftop.verbs.machine import Answer

TYPES = "PEL other"
"""Types of cores in the order in which they are listed."""
MAX_RUN = 72
"""Maximum cells of a run of CPUs; a longer run is harder to read than a list."""


def add(verbs: Any) -> None:
    text = "packages, caches, cores, CPUs"
    parser = options.add_verb(verbs, "topology", run, text, machine=True)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    return machine.answer(args, draw, "topology")


class _Core(NamedTuple):
    cpus: list[int]
    package: int | None
    die: int | None
    core: int | None
    l3: int | None
    node: int | None
    type: str | None


class _Branch(NamedTuple):
    cells: list[str]
    """Name, node, cores and CPUs, in columns shared by all branches of the same depth."""
    below: Sequence[_Branch] = ()


def draw(answer: Answer, _: int = 100, *, unicode: bool = True) -> list[str]:  # noqa: ARG001
    """Returns the lines of the tree."""
    cpus: list[Mapping[str, Any]] = answer["cpus"]
    cores = _cores_of_cpus(cpus)
    summary = " · ".join(_summary(cpus, cores))
    if offline_cpus := [int(row["cpu"]) for row in cpus if not row.get("online")]:
        summary += f"; offline: {_number_list(offline_cpus)}"
    branches = _packages(cores)
    widths: dict[tuple[int, int], int] = {}
    _measure_widths(branches, 0, widths)
    return [summary, *_render(branches, 0, widths, "")]


def _number_list(numbers: Iterable[int]) -> str:
    return ranges(numbers, strides=True)


# --- cores


def _cores_of_cpus(cpus: Sequence[Mapping[str, Any]]) -> list[_Core]:
    """Returns the cores with an online CPU, ordered by their first CPU. Cores are also
    distinguished by their siblings, because some kernels repeat core IDs."""
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for row in sorted(cpus, key=lambda row: int(row["cpu"])):
        if not row.get("online"):
            continue
        siblings = tuple(row.get("siblings") or ())
        ids = (row.get("package"), row.get("die"), row.get("core"))
        single_cpu = row["cpu"] if not siblings and ids[2] is None else None
        groups.setdefault((ids, siblings, single_cpu), []).append(row)
    keys = ("package", "die", "core", "l3", "node", "type")
    return [
        _Core([int(row["cpu"]) for row in rows], **{key: rows[0].get(key) for key in keys})
        for rows in groups.values()
    ]


def _summary(cpus: Sequence[Mapping[str, Any]], cores: list[_Core]) -> list[str]:
    packages = {core.package for core in cores} - {None}
    dies = {(core.package, core.die) for core in cores if core.die is not None}
    caches = {core.l3 for core in cores} - {None}
    nodes = {core.node for core in cores} - {None}
    types = [core.type or "other" for core in cores]
    threads = sorted({len(core.cpus) for core in cores})
    parts = [count_noun(len(packages), "package")] if packages else []
    if len(dies) > max(1, len(packages)):
        parts.append(count_noun(len(dies), "die"))
    kinds = [f"{types.count(kind)} {kind}" for kind in sorted(set(types), key=TYPES.find)]
    has_types = any(core.type for core in cores)
    parts.append(count_noun(len(cores), "core") + (f" ({' + '.join(kinds)})" if has_types else ""))
    parts.append(count_noun(len(cpus), "CPU"))
    if len(threads) == 1:
        parts.append(count_noun(threads[0], "thread") + " a core")
    elif threads:
        parts.append(f"{threads[0]}-{threads[-1]} threads a core")
    if len(caches) > max(1, len(packages)):
        parts.append(count_noun(len(caches), "L3 cache"))
    if nodes:
        parts.append(count_noun(len(nodes), "NUMA node"))
    return parts


# --- branches


def _grouped_by(cores: list[_Core], key: Callable[[_Core], int | None]) -> list[list[_Core]]:
    """Returns the cores, grouped and ordered by an ID; cores without this ID are last."""
    groups: dict[int | None, list[_Core]] = {}
    for core in cores:
        groups.setdefault(key(core), []).append(core)
    order = sorted(groups, key=lambda n: (n is None, n or 0))
    return [groups[n] for n in order]


def _packages(cores: list[_Core]) -> list[_Branch]:
    caches = any(core.l3 is not None for core in cores)
    groups = _grouped_by(cores, lambda core: core.package)
    fold = _foldable(groups)
    branches = []
    for group in [cores] if fold else groups:
        package = group[0].package
        name = "package ?" if package is None else f"package {package}"
        if fold:
            name = f"packages {_number_list(c.package or 0 for c in group)}, a core each"
        total = sum(len(core.cpus) for core in group)
        cells = [name, count_noun(len(group), "core"), count_noun(total, "CPU")]
        dies = [] if fold else _grouped_by(group, lambda core: core.die)
        if len(dies) < 2:
            branches.append(_Branch(cells, _caches(group, caches)))
            continue
        names = ("?" if part[0].die is None else part[0].die for part in dies)
        below = [
            _Branch([f"die {name}"], _caches(part, caches))
            for name, part in zip(names, dies, strict=True)
        ]
        branches.append(_Branch(cells, below))
    return branches


def _caches(cores: list[_Core], caches: bool) -> list[_Branch]:
    groups = _grouped_by(cores, lambda core: core.l3)
    if _foldable(groups) and groups[-1][0].l3 is not None:
        return [_group(f"L3 {_number_list(c.l3 or 0 for c in cores)}, a core each", cores)]
    branches = []
    for group in groups:
        name = f"L3 {group[0].l3}"
        if group[0].l3 is None:
            name = "no L3" if caches else ""
        branches.append(_group(name, group))
    return branches


def _foldable(groups: list[list[_Core]]) -> bool:
    """Whether there are more than two groups that each have one core and are all alike, so that one
    line is enough for them. Virtual machines have hundreds of such groups."""
    cores = [group[0] for group in groups]
    kinds = {(core.node, core.type, len(core.cpus), core.die) for core in cores}
    firsts = [core.cpus[0] for core in cores]
    are_alike = all(len(group) == 1 for group in groups) and len(kinds) == 1
    return len(groups) > 2 and are_alike and firsts == sorted(firsts)


def _group(name: str, cores: list[_Core]) -> _Branch:
    """Returns the branch of one L3 cache. Cores that differ in node, type or number of threads have
    separate lines."""
    classes: dict[tuple[int | None, str | None, int], list[_Core]] = {}
    for core in cores:
        classes.setdefault((core.node, core.type, len(core.cpus)), []).append(core)
    nodes = {node for node, _, _ in classes if node is not None}
    node_text = f"node {_number_list(nodes)}" if nodes else ""
    if len(classes) == 1:
        run, core_list = _equal_cores_branch(cores)
        return _Branch([name, node_text, *run], core_list)
    branches = []
    for (node, _, _), part in classes.items():
        run, core_list = _equal_cores_branch(part)
        own_node_text = f"node {node}" if len(nodes) > 1 and node is not None else ""
        branches.append(_Branch([own_node_text, *run], core_list))
    return _Branch([name or "cores", node_text], branches)


def _equal_cores_branch(cores: list[_Core]) -> tuple[list[str], list[_Branch]]:
    """Returns the cells for cores of one kind: cores and CPUs in one line, or the number of cores
    and a list of branches below."""
    kind = f"{cores[0].type} " if cores[0].type else ""
    ids = [core.core for core in cores]
    known_ids = [n for n in ids if n is not None]
    has_same_ids = len(cores) > 1 and len(set(ids)) == 1  # one core in each package
    plural = "s" if len(cores) > 1 and not has_same_ids else ""
    label = kind + count_noun(len(cores), "core")
    if known_ids:
        of_each = " of each" if has_same_ids else ""
        label = f"{kind}core{plural} {_number_list(known_ids)}{of_each}"
    cpus = _pattern(cores)
    # The k-th core has the k-th CPU of each list only if cores and CPUs ascend together.
    is_sequence = len(known_ids) == len(ids) and all(a < b for a, b in pairwise(known_ids))
    is_regular = is_sequence or has_same_ids or not known_ids
    if cpus and max(len(cpus), len(label)) <= MAX_RUN and is_regular:
        return [label, cpus], []
    texts = [f"core {'?' if c.core is None else c.core}: {_number_list(c.cpus)}" for c in cores]
    lines = textwrap.wrap("   ".join(t.replace(" ", "\u00a0") for t in texts), MAX_RUN)
    return [kind + count_noun(len(cores), "core")], [
        _Branch([t.replace("\u00a0", " ")]) for t in lines
    ]


def _pattern(cores: list[_Core]) -> str:
    """Returns the CPUs of cores in short form; '' if there is no regular pattern. All cores must
    have the same number of CPUs."""
    flat = [cpu for core in cores for cpu in core.cpus]
    threads = len(cores[0].cpus)
    plural = "" if len(flat) == 1 else "s"
    if all(core.cpus[-1] - core.cpus[0] == threads - 1 for core in cores):
        threads_text = f" ({threads} a core)" if 1 < threads < len(flat) else ""
        return f"cpu{plural} {_number_list(flat)}{threads_text}"
    columns = list(zip(*(core.cpus for core in cores), strict=True))
    if any(a >= b for column in columns for a, b in pairwise(column)):
        return ""
    return "cpus " + " + ".join(_number_list(column) for column in columns)


# --- lines


def _measure_widths(
    branches: Sequence[_Branch], depth: int, widths: dict[tuple[int, int], int]
) -> None:
    for branch in branches:
        for column, cell in enumerate(branch.cells[:-1]):  # the last cell needs no padding
            key = (depth, column)
            widths[key] = max(widths.get(key, 0), len(cell))
        _measure_widths(branch.below, depth + 1, widths)


def _render(
    branches: Sequence[_Branch], depth: int, widths: dict[tuple[int, int], int], indent: str
) -> list[str]:
    lines = []
    for branch in branches:
        is_last = branch is branches[-1]
        cells = (cell.ljust(widths.get((depth, i), 0)) for i, cell in enumerate(branch.cells))
        text = "   ".join(cell for cell in cells if cell).rstrip()
        lines.append(indent + ("└─ " if is_last else "├─ ") + text)
        deeper_indent = indent + ("   " if is_last else "│  ")
        lines += _render(branch.below, depth + 1, widths, deeper_indent)
    return lines
