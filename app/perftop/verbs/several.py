"""What verbs on several machines share: names of their files, and how it went."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from perftop.base.errors import USAGE, Failed, complain

ENDING = ".perftop"
MOST_NAME = 64
MOST = 64
"""Machines at once."""


def paths(directory: Path, hosts: Sequence[str]) -> list[Path]:
    """A file for each machine, in a directory that is made if need be. Raises Failed."""
    if len(hosts) > MOST:
        raise Failed(f"{len(hosts)} machines: {MOST} at once are possible", USAGE)
    if len(set(hosts)) != len(hosts):
        raise Failed("a machine is named twice", USAGE)
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        text = f"-o {directory}: several machines need a directory: {error.strerror or error}"
        raise Failed(text) from None
    found: list[Path] = []
    for host in hosts:
        name = re.sub(r"[^A-Za-z0-9._@-]+", "-", host)[:MOST_NAME].lstrip(".-") or "host"
        path, number = directory / f"{name}{ENDING}", 2
        while path in found:
            path, number = directory / f"{name}-{number}{ENDING}", number + 1
        found.append(path)
    return found


def told(status: int, failed: Sequence[Failed | None]) -> int:
    """Says what failed; returns the exit status: 0 only if nothing did."""
    lines = [str(each) for each in failed if each is not None]
    for line in dict.fromkeys(lines):
        complain(line)
    if len(lines) > 1 or (lines and len(failed) > 1):
        complain(f"{len(lines)} of {len(failed)} machines failed")
    statuses = {each.status for each in failed if each is not None}
    if status or not statuses:
        return status
    return statuses.pop() if len(lines) == len(failed) and len(statuses) == 1 else 1
