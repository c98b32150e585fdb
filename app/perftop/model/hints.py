"""What records name as a likely reason of losses, without a size: messages of the kernel's log, and
programs that manage power. Records are untrusted: they are checked here, and names are made safe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from perftop.base.text import safe

MAX_NAMES, MAX_NAME_LENGTH = 64, 64


class Hints:
    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], int] = {}
        """How often messages of the kernel's log named something, by kind and name."""
        self.managers: list[str] = []
        """Programs that may lower limits of power and clock, with their PIDs."""

    def take(self, records: Mapping[str, object]) -> None:
        """Reads the records of a frame."""
        log, managers = records.get("kernel_log"), records.get("managers")
        for message in log if isinstance(log, list) else ():
            match message:
                case [str() as kind, str() as name, int() as count] if count > 0:
                    key = kind, safe(name, MAX_NAME_LENGTH)
                    if key in self.messages or len(self.messages) < MAX_NAMES:
                        self.messages[key] = self.messages.get(key, 0) + count
        if isinstance(managers, dict):
            pids = [pid for pid in managers if re.fullmatch("[0-9]{1,10}", str(pid))]
            self.managers = [f"{safe(str(managers[pid]), MAX_NAME_LENGTH)}[{pid}]" for pid in pids]
