"""Names that the kernel does not list, as far as perf or libpfm4 is installed and knows them.

What they say is not trusted: an encoding counts only if it is one of a core PMU of this machine, by
this machine's own formats.
"""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from perfprobe.frozen import frozen
from perfprobe.kernel.event_terms import Code

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""Where perf is looked for: not in the caller's PATH, since the probe may run as root."""
WAIT_S = 5.0
MOST_BYTES = 32 << 20
MOST_TEXT = 200
PFM, PFM_RINGS = "libpfm.so.4", 0x1 | 0x8
ATTR_BYTES = 256
"""More than any kernel's perf_event_attr."""
_ENCODING = re.compile(r"([A-Za-z0-9_-]{1,32})/([A-Za-z0-9_=,.x-]{1,200})/[a-zA-Z]*")
_LEFT_OUT = ("period", "freq", "name", "metric-id", "long_desc", "desc")
"""Terms of perf that do not choose what is counted."""


@frozen
class Named:
    """An event that perf knows, by its PMU and terms."""

    pmu: str
    terms: str
    about: str


def perf_events(run: Callable[[], bytes] | None = None) -> Mapping[str, list[Named]]:
    """The events of `perf list -j` with an encoding, by name in small letters; empty without perf,
    or with one that is too old to tell. `run` is for tests."""
    try:
        listed = json.loads((run or _listed)())
    except (OSError, ValueError, subprocess.SubprocessError, RecursionError):
        return {}
    found: dict[str, list[Named]] = {}
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict):
            named = _named(item)
            name = item.get("EventName")
            if named is not None and isinstance(name, str) and len(name) <= MOST_TEXT:
                found.setdefault(name.lower(), []).append(named)
    return found


def _named(item: dict[str, Any]) -> Named | None:
    encoding = item.get("Encoding")
    match = _ENCODING.fullmatch(encoding) if isinstance(encoding, str) else None
    if match is None:
        return None
    terms = [t for t in match[2].split(",") if t.partition("=")[0] not in _LEFT_OUT]
    about = item.get("BriefDescription")
    told = about[:MOST_TEXT] if isinstance(about, str) and about.isprintable() else ""
    return Named(match[1], ",".join(terms), told)


def _listed() -> bytes:
    """What perf prints. Raises OSError or SubprocessError."""
    path = shutil.which("perf", path=PATH)
    if path is None:
        raise FileNotFoundError("perf")
    with subprocess.Popen(
        [path, "list", "-j"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={"LC_ALL": "C", "PATH": PATH, "PAGER": "cat"},
    ) as perf:  # fmt: skip
        try:
            out, _ = perf.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            perf.kill()
            raise
    return out if len(out) <= MOST_BYTES else b""


def pfm_code(name: str, library: str = PFM) -> tuple[int, Code] | None:
    """Type and words of an event that libpfm4 knows; None without it, or if it does not."""
    try:
        pfm = ctypes.CDLL(library)
        if pfm.pfm_initialize() != 0:
            return None
        attr = ctypes.create_string_buffer(ATTR_BYTES)
        status = pfm.pfm_get_perf_event_encoding(name.encode("ascii"), PFM_RINGS, attr, None, None)
    except (OSError, AttributeError, ValueError):
        return None
    if status != 0:
        return None
    kind, _, config = struct.unpack_from("=IIQ", attr.raw, 0)
    config1, config2 = struct.unpack_from("=QQ", attr.raw, 56)
    return kind, Code(config, config1, config2)
