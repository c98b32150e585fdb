"""Sets of CPUs as text: the kernel's lists, and the syntax of `-c/--cpus`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from perfprobe.errors import UsageError
from perfprobe.wire import Cpu

MAX_CPU = 1 << 16
"""Exclusive upper bound of CPU numbers, and maximum number of CPUs in a list."""

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+)/([0-9]+))?)?")
_PACKAGE_AND_CORE = re.compile(r"(?:pkg([0-9]{1,9}))?(?:core([0-9]{1,9}))?")


def parse(text: str) -> list[int]:
    """Returns the CPUs of a kernel list, in order: "0-3,8", or "0-31:1/2" for every second CPU."""
    cpus: set[int] = set()
    named_count = 0
    for item in re.split(r"[,\s]+", text.strip()):
        if not item:  # the kernel allows empty items, and prints an empty line for "none"
            continue
        members = _expand_range(item)
        named_count += len(members)
        if named_count > MAX_CPU:
            raise UsageError(f"a CPU list names more than {MAX_CPU} CPUs")
        cpus.update(members)
    return sorted(cpus)


def format(cpus: Iterable[int]) -> str:  # noqa: A001 - the counterpart of parse
    """Returns the CPUs as a kernel list with ranges, such as "0-3,8"."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)


def select(text: str, rows: Sequence[Cpu]) -> list[int]:
    """Returns the CPUs of `rows` that a user's selection names, in ascending order.

    Terms, separated by commas: 0-15 · 32 · pkg0 · core3 · pkg1core3 · type:P. A single CPU must
    exist; a range may include missing CPUs, but must not end beyond the last CPU.
    """
    terms = [term.strip() for term in text.split(",")]
    if terms == [""]:
        raise UsageError("no CPUs are named: the selection is empty")
    cpus: set[int] = set()
    for term in terms:
        if not term:
            raise UsageError(f"{_quote(text)}: an item between commas is empty")
        cpus.update(_expand_term(term, rows))
    return sorted(cpus)


def _expand_range(item: str) -> range | list[int]:
    match = _RANGE.fullmatch(item)
    if match is None:
        raise UsageError(f"{_quote(item)} is not a CPU number or a range")
    # int() of a long text is slow, and fails for a very long one.
    if any(len(number) > 20 for number in match.groups() if number):
        raise UsageError(f"{_quote(item)}: the highest CPU number is {MAX_CPU - 1}")
    first, last, group_used, group = (int(n) if n else None for n in match.groups())
    assert first is not None
    last = first if last is None else last
    if max(first, last) >= MAX_CPU:
        raise UsageError(f"{_quote(item)}: the highest CPU number is {MAX_CPU - 1}")
    if last < first:
        raise UsageError(f"{_quote(item)} runs backwards")
    if group_used is None or group is None:
        return range(first, last + 1)
    if not 0 < group_used <= group:
        raise UsageError(f"{_quote(item)}: cannot select {group_used} of every {group} CPUs")
    return [cpu for cpu in range(first, last + 1) if (cpu - first) % group < group_used]


# --- selection -----------------------------------------------------------------------------------


def _expand_term(term: str, rows: Sequence[Cpu]) -> list[int]:
    lower = term.lower()
    if lower[0] in "0123456789":
        named_cpus, existing = parse(term), {row.cpu for row in rows}
        selected = [cpu for cpu in named_cpus if cpu in existing]
        if not selected or named_cpus[-1] > max(existing):
            missing_cpus = format(cpu for cpu in named_cpus if cpu not in existing)
            raise UsageError(_no_match_text(f"CPU {missing_cpus}", format(existing)))
        return selected
    if lower.startswith("type:"):
        name = term[5:].strip()
        types = {row.cpu: row.type for row in rows if row.type is not None}
        matches = [cpu for cpu, kind in types.items() if kind.lower() == name.lower()]
        if not types:
            raise UsageError(f"type:{_shorten(name)}: the CPUs here have no types")
        if not matches:
            raise UsageError(
                _no_match_text(f"CPU of type {_quote(name)}", ", ".join(sorted({*types.values()})))
            )
        return matches
    match = _PACKAGE_AND_CORE.fullmatch(lower)
    if match is None:
        raise UsageError(
            f"invalid CPUs {_quote(term)} (try 0-15, 32, pkg0, core3, pkg1core3, type:P)"
        )
    package, core = (int(n) if n else None for n in match.groups())
    scope_text = ""
    if package is not None:
        rows = _matching_cpus(rows, lambda row: row.package, package, "package")
        scope_text = f" in package {package}"
    if core is not None:
        rows = _matching_cpus(rows, lambda row: row.core, core, "core", scope_text)
    return [row.cpu for row in rows]


def _matching_cpus(
    rows: Sequence[Cpu],
    get_id: Callable[[Cpu], int | None],
    wanted_id: int,
    noun: str,
    scope_text: str = "",
) -> list[Cpu]:
    matches = [row for row in rows if get_id(row) == wanted_id]
    if not matches:
        ids = {value for row in rows if (value := get_id(row)) is not None}
        if not ids:
            raise UsageError(
                f"{noun} {wanted_id}: the kernel does not report {noun}s{scope_text} here"
            )
        raise UsageError(_no_match_text(f"{noun} {wanted_id}{scope_text}", format(ids)))
    return matches


def _no_match_text(noun: str, existing: str) -> str:
    verb = "are" if any(c in existing for c in "-,") else "is only"
    return f"there is no {noun} here; there {verb} {existing}"


def _quote(text: str) -> str:
    return repr(_shorten(text))


def _shorten(text: str) -> str:
    """Returns text from the user, printable and short enough for one line of a message."""
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return printable if len(printable) <= 40 else printable[:39] + "…"
