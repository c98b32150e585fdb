"""The file of counters that selftests found wrong since this boot, which the screen reads. The
module imports quickly because the screen uses it at startup."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from perftop.base.files import own_content, replace, user_directory

FORMAT = "perftop selftest 1"
"""Value of the file's `format` key; a file with any other value is ignored."""
MAX_FILE = 1 << 16
"""Maximum size of the file in bytes; a larger file is ignored."""


def file() -> Path:
    """Path of the file. If XDG_RUNTIME_DIR is set, the file is in it and is deleted at logout or
    reboot."""
    running = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    base = running if running.is_absolute() else user_directory("CACHE", "~/.cache")
    return base / "perftop" / "selftest.json"


def keep(answer: Mapping[str, Any]) -> None:
    """Replace the content of the file by the counters that are wrong now. Raises OSError."""
    import json

    if answer["boot_id"] is None:
        return
    path, wrong = file(), [*answer["wrong"], *_still_wrong(answer)]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = {key: answer[key] for key in ("boot_id", "time")}
    replace(path, json.dumps({"format": FORMAT, **about, "wrong": wrong}).encode())


def _still_wrong(answer: Mapping[str, Any]) -> list[str]:
    """Counters found wrong earlier on this boot that this answer does not find correct. A disturbed
    test, or a source without the counter, clears no counter."""
    right: dict[str, bool] = {}
    for check in answer["checks"]:
        clear = check["verdict"] in {"trusted", "close"} and not check["disturbed"]
        right[check["counter"]] = clear and right.get(check["counter"], True)
    for row in answer.get("instruments", ()):
        for name in row["counters"]:
            right[name] = row["verdict"] == "works" and right.get(name, True)
    before = _found_wrong(answer["boot_id"])
    return [name for name in before if not right.get(name) and name not in answer["wrong"]]


@functools.cache
def verdict(boot_id: str | None) -> str | None:
    """A line that names the counters found wrong by selftests on the boot with this ID; None if
    there are none. The line is cached, so findings made while the screen is open are shown at its
    next start."""
    wrong = _found_wrong(boot_id) if boot_id is not None else []
    return f"selftest found counters wrong on this boot: {', '.join(wrong)}" if wrong else None


def _found_wrong(boot_id: str) -> list[str]:
    """The counters in the file, if the file is ours, has the format written by `keep` and is of
    this boot."""
    import json

    with suppress(ValueError, RecursionError):
        content = json.loads(own_content(file(), MAX_FILE) or b"")
        if isinstance(content, dict) and (content.get("format"), content.get("boot_id")) == (
            FORMAT, boot_id,
        ):  # fmt: skip
            wrong = content.get("wrong")
            if isinstance(wrong, list) and all(isinstance(name, str) for name in wrong):
                return wrong
    return []
