"""Counters that selftests of this boot found wrong, kept in a file for the screen. The module
imports quickly because the screen uses it at its start."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from perftop.base.user_directory import own_content, user_directory

FORMAT = "perftop selftest 1"
"""Value of the file's `format` key; a file with any other value is ignored."""
MAX_FILE = 1 << 16


def file() -> Path:
    """Path of the file. Under XDG_RUNTIME_DIR, where set, it is deleted at logout or reboot."""
    running = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    base = running if running.is_absolute() else user_directory("CACHE", "~/.cache")
    return base / "perftop" / "selftest.json"


def keep(answer: Mapping[str, Any]) -> None:
    """Replace the file by the counters that are wrong now. Raises OSError."""
    import json

    from perftop.base import new_file

    if answer["boot_id"] is None:
        return
    path, wrong = file(), [*answer["wrong"], *_standing(answer)]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = {key: answer[key] for key in ("boot_id", "time")}
    new_file.replace(path, json.dumps({"format": FORMAT, **about, "wrong": wrong}).encode())


def _standing(answer: Mapping[str, Any]) -> list[str]:
    """Counters found wrong earlier on this boot and not found right by this answer. A disturbed
    test, or a source without the counter, clears nothing."""
    right: dict[str, bool] = {}
    for check in answer["checks"]:
        clear = check["verdict"] in {"trusted", "close"} and not check["disturbed"]
        right[check["counter"]] = clear and right.get(check["counter"], True)
    for row in answer.get("instruments", ()):
        for name in row["counters"]:
            right[name] = row["verdict"] == "works" and right.get(name, True)
    before = _wrong(answer["boot_id"])
    return [name for name in before if not right.get(name) and name not in answer["wrong"]]


@functools.cache
def verdict(boot_id: str | None) -> str | None:
    """A line that names the counters that selftests of that boot found wrong; None if there are
    none. Cached, so findings made while the screen is open show at its next start."""
    wrong = _wrong(boot_id) if boot_id is not None else []
    return f"selftest found counters wrong on this boot: {', '.join(wrong)}" if wrong else None


def _wrong(boot_id: str) -> list[str]:
    kept = _read()
    wrong = kept.get("wrong") if kept is not None and kept.get("boot_id") == boot_id else None
    whole = isinstance(wrong, list) and all(isinstance(n, str) for n in wrong)
    return wrong if whole and wrong else []


def _read() -> dict[str, Any] | None:
    """Content of the file if it is a regular file, owned by us, in the format of `keep`."""
    import json

    with suppress(ValueError, RecursionError):
        found = json.loads(own_content(file(), MAX_FILE) or b"")
        if isinstance(found, dict) and found.get("format") == FORMAT:
            return found
    return None
