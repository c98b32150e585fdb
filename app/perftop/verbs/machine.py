"""`perftop topology` and `perftop events`, and code shared with other verbs that query the machine.
The probe runs as a child process and answers in JSON, which is formatted here, so that only the
probe needs privileges."""

from __future__ import annotations

import argparse
import contextlib
import functools
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from perftop.base.errors import UNAVAILABLE, Failed
from perftop.base.text import (
    EIGHTHS,
    bar_chart,
    count_noun,
    ranges,
    supports_unicode,
    terminal_text,
    wrap_indented,
)
from perftop.verbs import options

Answer = dict[str, Any]
FormatAnswer = Callable[..., list[str]]
"""Formats an answer as lines. Its arguments are the answer, the width in columns, and `unicode`:
whether characters outside ASCII are allowed."""
INDENT = 20
MIN_WIDTH = 80
"""Minimum width of lines; narrower terminals wrap them."""
HISTOGRAM_BINS, _ASCII_BARS = 24, " .:-=+*#@"
"""Number of bins of a histogram, and the ASCII characters that represent them."""
ANSWER_ERRORS = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
"""Exceptions that an answer with an unexpected structure causes."""
MAX_REASON_LENGTH = 100
"""Maximum characters of the Python error in a message about a malformed answer."""


def add_instrument(subparsers: Any, name: str, verb: options.RunVerb, text: str) -> options.Parser:
    """Adds a verb that measures by running code on the machine, so that it has no --sysroot."""
    parser = options.add_verb(subparsers, name, verb, text)
    options.add_json_options(parser)
    options.add_machine_options(parser)
    return parser


def ask_machine(args: argparse.Namespace, verb: str, *arguments: str) -> Answer:
    from perftop.process import launch

    return launch.ask_probe(options.probe_command(args, verb, "--json", *arguments))


@contextlib.contextmanager
def checked_answer(args: argparse.Namespace) -> Iterator[None]:
    """Raises Failed if the block fails because of the structure of a remote answer: it must be from
    another version of the probe, or from another program."""
    try:
        yield
    except ANSWER_ERRORS as error:
        if args.host is None:
            raise
        reason = f"{type(error).__name__}: {error}"[:MAX_REASON_LENGTH]
        text = f"{args.host}: the probe's answer cannot be parsed ({reason})"
        raise Failed(f"{text}; is the same perftop version installed there?", UNAVAILABLE) from None


def ask_and_print(args: argparse.Namespace, draw: FormatAnswer, verb: str, *arguments: str) -> int:
    """Queries the probe, for the CPU of --cpu if given, and prints the answer. Returns the exit
    status."""
    cpu: int | None = getattr(args, "cpu", None)
    arguments += () if cpu is None else (f"--cpu={cpu}",)
    with checked_answer(args):
        print_answer(ask_machine(args, verb, *arguments), draw, as_json=args.json)
    return 0


def print_answer(answer: Answer, draw: FormatAnswer, *, as_json: bool) -> None:
    """Prints an answer on stdout, formatted to the width of the terminal or as JSON."""
    if as_json:
        import json

        print(json.dumps(answer))
    else:
        width = shutil.get_terminal_size((80, 24)).columns
        print(*draw_answer(answer, draw, width, unicode=supports_unicode()), sep="\n")


def draw_answer(answer: Answer, draw: FormatAnswer, width: int, *, unicode: bool) -> list[str]:
    return [terminal_text(s, unicode=unicode) for s in draw(answer, width, unicode=unicode)]


def fact_lines(name: str, text: str, width: int, indent: int = INDENT) -> list[str]:
    """Returns one row of a table as lines: the name, then the wrapped text."""
    return wrap_indented(f"{name:<{indent}}{text}", width, indent)


def bar_line(counts: Sequence[int], *, unicode: bool) -> str:
    return f"{bar_chart(counts, EIGHTHS if unicode else _ASCII_BARS):{HISTOGRAM_BINS}}"


def disturbance_lines(answer: Answer, width: int) -> list[str]:
    if not answer["disturbances"]:
        return ["no disturbance was seen"]
    lines = ["disturbances"]
    for disturbance in answer["disturbances"]:
        finding = f"{disturbance['found']}: {disturbance['matters']}"
        lines += fact_lines(f"  {disturbance['what']}", finding, width)
    return lines


# --- `perftop topology`: prints the machine as a text tree
#
# Cores whose CPUs have a pattern share a line. In "cores 0-23   cpus 0-23 + 48-71", the first core
# has the first CPU of each list, and so on; "(2 per core)": adjacent CPUs share a core. Other cores
# are listed one by one.

CORE_TYPES = "PEL other"
MAX_PATTERN_WIDTH = 72
"""Maximum width of a pattern of CPUs, in cells; a list is easier to read than a longer one."""


def add_topology(subparsers: Any) -> None:
    text = "show packages, caches, cores and CPUs"
    run = functools.partial(ask_and_print, draw=topology_lines, verb="topology")
    options.add_json_options(options.add_verb(subparsers, "topology", run, text, machine=True))


class _Core(NamedTuple):
    cpus: list[int]
    package: int | None
    die: int | None
    core: int | None
    l3: int | None
    node: int | None
    type: str | None


Row = tuple[int, list[str]]
"""The depth of a row in the tree, and its cells: name, node, cores and CPUs. They are columns,
aligned over all rows of one depth."""


def topology_lines(answer: Answer, _: int, *, unicode: bool) -> list[str]:  # noqa: ARG001
    cpus: list[Mapping[str, Any]] = answer["cpus"]
    # The cores with an online CPU, ordered by their first CPU. Some kernels repeat core IDs, so
    # cores with different siblings are different as well.
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for row in sorted(cpus, key=lambda row: int(row["cpu"])):
        if row.get("online"):
            siblings = tuple(row.get("siblings") or ())
            ids = (row.get("package"), row.get("die"), row.get("core"))
            single_cpu = row["cpu"] if not siblings and ids[2] is None else None
            groups.setdefault((ids, siblings, single_cpu), []).append(row)
    keys = ("package", "die", "core", "l3", "node", "type")
    cores = [
        _Core([int(row["cpu"]) for row in rows], **{key: rows[0].get(key) for key in keys})
        for rows in groups.values()
    ]
    packages = {core.package for core in cores} - {None}
    dies = {(core.package, core.die) for core in cores if core.die is not None}
    caches = {core.l3 for core in cores} - {None}
    nodes = {core.node for core in cores} - {None}
    types = [core.type or "other" for core in cores]
    threads = sorted({len(core.cpus) for core in cores})
    parts = [count_noun(len(packages), "package")] if packages else []
    if len(dies) > max(1, len(packages)):
        parts.append(count_noun(len(dies), "die"))
    kinds = [f"{types.count(kind)} {kind}" for kind in sorted(set(types), key=CORE_TYPES.find)]
    has_types = any(core.type for core in cores)
    parts.append(count_noun(len(cores), "core") + (f" ({' + '.join(kinds)})" if has_types else ""))
    parts.append(count_noun(len(cpus), "CPU"))
    if len(threads) == 1:
        parts.append(count_noun(threads[0], "thread") + " per core")
    elif threads:
        parts.append(f"{threads[0]}-{threads[-1]} threads per core")
    if len(caches) > max(1, len(packages)):
        parts.append(count_noun(len(caches), "L3 cache"))
    if nodes:
        parts.append(count_noun(len(nodes), "NUMA node"))
    summary = " · ".join(parts)
    if offline_cpus := [int(row["cpu"]) for row in cpus if not row.get("online")]:
        summary += f"; offline: {_number_list(offline_cpus)}"
    tree = [*_package_rows(cores)]
    widths: dict[tuple[int, int], int] = {}
    for depth, cells in tree:
        for column, cell in enumerate(cells[:-1]):  # the last cell needs no padding
            widths[depth, column] = max(widths.get((depth, column), 0), len(cell))
    lines: list[str] = []
    open_depths = set[int]()
    """Depths at which another branch follows below the current row."""
    for depth, cells in reversed(tree):
        padded = (cell.ljust(widths.get((depth, i), 0)) for i, cell in enumerate(cells))
        text = "   ".join(cell for cell in padded if cell).rstrip()
        indent = "".join("│  " if level in open_depths else "   " for level in range(depth))
        lines.append(f"{indent}{'├─ ' if depth in open_depths else '└─ '}{text}")
        open_depths = {level for level in open_depths if level < depth} | {depth}
    return [summary, *reversed(lines)]


_number_list = functools.partial(ranges, strides=True)


# --- topology: rows


def _group_cores(cores: list[_Core], key: Callable[[_Core], int | None]) -> list[list[_Core]]:
    """Returns the cores, grouped and ordered by an ID; cores without this ID are last."""
    groups: dict[int | None, list[_Core]] = {}
    for core in cores:
        groups.setdefault(key(core), []).append(core)
    order = sorted(groups, key=lambda n: (n is None, n or 0))
    return [groups[n] for n in order]


def _can_fold(groups: list[list[_Core]]) -> bool:
    """Returns whether these groups fit on one line: more than two, all alike, each with one core.
    VMs may have hundreds of them."""
    cores = [group[0] for group in groups]
    kinds = {(core.node, core.type, len(core.cpus), core.die) for core in cores}
    first_cpus = [core.cpus[0] for core in cores]
    are_alike = all(len(group) == 1 for group in groups) and len(kinds) == 1
    return len(groups) > 2 and are_alike and first_cpus == sorted(first_cpus)


def _package_rows(cores: list[_Core]) -> Iterator[Row]:
    has_caches = any(core.l3 is not None for core in cores)
    groups = _group_cores(cores, lambda core: core.package)
    fold = _can_fold(groups)
    for group in [cores] if fold else groups:
        package = group[0].package
        name = "package ?" if package is None else f"package {package}"
        if fold:
            name = f"packages {_number_list(c.package or 0 for c in group)}, one core each"
        total = sum(len(core.cpus) for core in group)
        yield 0, [name, count_noun(len(group), "core"), count_noun(total, "CPU")]
        dies = [] if fold else _group_cores(group, lambda core: core.die)
        if len(dies) < 2:
            yield from _cache_rows(group, 1, has_caches=has_caches)
            continue
        for part in dies:
            yield 1, [f"die {'?' if part[0].die is None else part[0].die}"]
            yield from _cache_rows(part, 2, has_caches=has_caches)


def _cache_rows(cores: list[_Core], depth: int, *, has_caches: bool) -> Iterator[Row]:
    """Yields the row of each L3. If its cores differ in node, type or number of threads, each kind
    has a row below."""
    groups = _group_cores(cores, lambda core: core.l3)
    fold = _can_fold(groups) and groups[-1][0].l3 is not None
    for group in [cores] if fold else groups:
        name = f"L3 {group[0].l3}"
        if fold:
            name = f"L3 {_number_list(c.l3 or 0 for c in group)}, one core each"
        elif group[0].l3 is None:
            name = "no L3" if has_caches else ""
        kinds: dict[tuple[int | None, str | None, int], list[_Core]] = {}
        for core in group:
            kinds.setdefault((core.node, core.type, len(core.cpus)), []).append(core)
        nodes = {node for node, _, _ in kinds if node is not None}
        node_text = f"node {_number_list(nodes)}" if nodes else ""
        if len(kinds) == 1:
            yield from _equal_core_rows(group, depth, [name, node_text])
            continue
        yield depth, [name or "cores", node_text]
        for (node, _, _), part in kinds.items():
            own_node_text = f"node {node}" if len(nodes) > 1 and node is not None else ""
            yield from _equal_core_rows(part, depth + 1, [own_node_text])


def _equal_core_rows(cores: list[_Core], depth: int, first_cells: list[str]) -> Iterator[Row]:
    """Yields the rows of cores of one kind: the cores and their CPUs or, if these have no pattern,
    the number of cores and a list below."""
    kind = f"{cores[0].type} " if cores[0].type else ""
    ids = [core.core for core in cores]
    known_ids = [n for n in ids if n is not None]
    has_same_ids = len(cores) > 1 and len(set(ids)) == 1  # each package has a single core
    plural = "s" if len(cores) > 1 and not has_same_ids else ""
    label = kind + count_noun(len(cores), "core")
    if known_ids:
        label = f"{kind}core{plural} {_number_list(known_ids)}{' of each' * has_same_ids}"
    cpus = _cpu_pattern(cores)
    # A pattern pairs cores and CPUs by position, so both must ascend.
    is_sequence = len(known_ids) == len(ids) and all(a < b for a, b in pairwise(known_ids))
    is_regular = is_sequence or has_same_ids or not known_ids
    if cpus and max(len(cpus), len(label)) <= MAX_PATTERN_WIDTH and is_regular:
        yield depth, [*first_cells, label, cpus]
        return
    yield depth, [*first_cells, kind + count_noun(len(cores), "core")]
    texts = [f"core {'?' if c.core is None else c.core}: {_number_list(c.cpus)}" for c in cores]
    for line in textwrap.wrap(
        "   ".join(t.replace(" ", "\u00a0") for t in texts), MAX_PATTERN_WIDTH
    ):
        yield depth + 1, [line.replace("\u00a0", " ")]


def _cpu_pattern(cores: list[_Core]) -> str:
    """Returns the CPUs of these cores as a short pattern, or '' if they have none. All cores must
    have the same number of CPUs."""
    all_cpus = [cpu for core in cores for cpu in core.cpus]
    threads = len(cores[0].cpus)
    plural = "" if len(all_cpus) == 1 else "s"
    if all(core.cpus[-1] - core.cpus[0] == threads - 1 for core in cores):
        threads_text = f" ({threads} per core)" if 1 < threads < len(all_cpus) else ""
        return f"cpu{plural} {_number_list(all_cpus)}{threads_text}"
    columns = list(zip(*(core.cpus for core in cores), strict=True))
    if any(a >= b for column in columns for a, b in pairwise(column)):
        return ""
    return "cpus " + " + ".join(_number_list(column) for column in columns)


# --- `perftop events`: lists the events that -e can count on this machine

EVENT_INDENT = 28


def add_events_verb(subparsers: Any) -> None:
    text = "list the events that -e can count here"
    parser = options.add_verb(subparsers, "events", run_events, text, machine=True)
    text = "list only events with WORD in their name or description"
    parser.add_argument("word", nargs="?", metavar="WORD", help=text)
    text = "list the events of this source: auto (default), perf"
    parser.add_argument("--source", default="auto", metavar="NAME", help=text)
    options.add_json_options(parser)


def run_events(args: argparse.Namespace) -> int:
    arguments = [] if args.source == "auto" else [f"--source={args.source}"]
    arguments += [] if args.word is None else [f"--word={args.word}"]
    draw = functools.partial(event_lines, word=args.word or "")
    return ask_and_print(args, draw, "events", *arguments)


def event_lines(answer: Answer, width: int, *, word: str = "", **_: bool) -> list[str]:
    lines: list[str] = []
    pmus = {pmu["pmu"]: pmu for pmu in answer["pmus"]}
    for pmu, rows in groupby(answer["events"], key=lambda row: row["pmu"]):
        heading, facts = "software: of every CPU", pmus.get(pmu)
        if facts is not None:
            kind = "" if facts["type"] is None else f"{facts['type']} cores, "
            place = f"CPUs {facts['cpus']}" if facts["cpus"] else "every CPU"
            heading = f"{pmu}: {kind}{place}"
        lines += [*([""] if lines else []), heading]
        for row in rows:
            unit = "" if row["unit"] in {"1", "cycles", "instructions"} else f", in {row['unit']}"
            open_text = f" (open: {', '.join(row['open'])})" if row["open"] else ""
            open_text += f" (n/a: {row['refused']})" if row.get("refused") else ""
            name = f"  {row['name']:<{EVENT_INDENT - 3}} "
            lines += fact_lines(name, f"{row['about']}{unit}{open_text}", width, EVENT_INDENT)
    if not answer["events"]:
        found_in = f" with {word!r} in its name or description" if word else ""
        lines = [f"no event here{found_in}"]
    for reason in answer["missing"]:
        fix = f"; {reason['fix']}" if reason["fix"] else ""
        text = f"not here: events of cores - {reason['why']}{fix}"
        lines += ["", *wrap_indented(text, width, 10)]
    return lines
