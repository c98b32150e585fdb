"""The CPUs whose registers are read, grouped by core type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from perfprobe.cpu import cpuid, model
from perfprobe.cpu.cpuid import Leaves
from perfprobe.cpu.model_terms import Uarch
from perfprobe.frozen import frozen
from perfprobe.native import cpuid_reader
from perfprobe.wire import Cpu, Identity


@frozen
class Kind:
    """CPUs of one core type."""

    cpus: list[int]
    online: list[int]
    uarch: Uarch
    leaves: Leaves


def kinds(
    root: Path, rows: Sequence[Cpu], identity: Identity, method: str | None
) -> Iterator[Kind]:
    """Yields a kind for each core type. Offline CPUs have no type; they are included if there is
    only one."""
    types = sorted({row.type or "" for row in rows if row.online})
    for name in types:
        mine = [row for row in rows if (row.type or "") == name or len(types) == 1]
        online = [row.cpu for row in mine if row.online]
        first = online[0]
        given: Leaves = cpuid.device(root, first) if root != Path("/") else cpuid_reader.of(first)
        found = model.preferring(model.of(identity, given, name or None), method)
        yield Kind([row.cpu for row in mine], online, found, given)
