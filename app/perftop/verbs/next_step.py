"""The last lines of `perftop doctor`: what there is here, the best next step, and what to type."""

from __future__ import annotations

import shlex
from typing import Any

from perfprobe.frozen import frozen

Answer = dict[str, Any]
PROC, COUNTERS = "/proc", "perf counters"
GIVES = {
    PROC: "utilisation, steal, tasks and whom they wait for",
    COUNTERS: "clock, IPC, halts",
    "MSRs": "ceilings and causes of a low clock",
    "idle transitions": "busy time to the microsecond",
}
"""What a source gives by which a machine is judged; what all else rests on comes first."""
BY_ROOT = "perftop --sudo"
"""The part of a remedy that more rights are."""
BY_HAND = ("--source", "msr")
SUDO = "sudo "
UNUSABLE = "not usable"


@frozen
class Asked:
    """The machine that the doctor was asked about, and what whoever asked may do there."""

    host: str | None = None
    """As ssh knows it; None: this machine."""
    remote: str | None = None
    sysroot: str | None = None
    """Directory that is read in place of the machine's own files."""
    root: bool = False
    """The probe runs as root without being told to."""
    sudo: bool = False
    """It was told to, with --sudo."""
    program: str | None = None
    """perftop by its path, where `su` must start it, because there is no sudo."""

    def command(self, *words: str, sudo: bool = False) -> str:
        """perftop with these words, for the same machine."""
        where = ["--host", self.host] if self.host is not None else []
        where += ["--remote", self.remote] if self.remote is not None else []
        where += ["--sysroot", self.sysroot] if self.sysroot is not None else []
        return shlex.join(["perftop", *words, *where, *(["--sudo"] if sudo or self.sudo else [])])

    def with_rights(self, first: str = "") -> str:
        """The screen with root's rights, after a command that needs the same."""
        if self.program is not None:
            return f"su -c {shlex.quote(_joined(first, self.program))}"
        rights = "" if self.root else SUDO
        there = "" if self.host is None else f"ssh -t {shlex.quote(self.host)} "
        return _joined(f"{there}{rights}{first}" if first else "", self.command(sudo=not self.root))


def _joined(*commands: str) -> str:
    return " && ".join(filter(None, commands))


def sentences(answer: Answer, asked: Asked) -> list[str]:
    """At most three."""
    checks = {check["what"]: check for check in answer["checks"] if check["what"] in GIVES}
    lacking = [what for what in GIVES if what in checks and checks[what]["state"] == UNUSABLE]
    there = [GIVES[what] for what in GIVES if what in checks and what not in lacking]
    if PROC not in checks:  # it is a check only where it is missing
        there.append(GIVES[PROC])
    found = f"You have {', '.join(there) or 'little'}"
    if lacking:
        found += f"; not: {', '.join(GIVES[what] for what in lacking)}"
    writable = COUNTERS in lacking and checks.get("MSRs", {}).get("state") == "usable"
    step, typed = _step([checks[what] for what in lacking], asked, writable)
    return [f"{found}.", f"{step}.", f"Type: {typed}"]


def _step(lacking: list[Answer], asked: Asked, writable: bool) -> tuple[str, str]:
    """What gives most of what is lacking, and the command for it. `writable`: MSRs are."""
    look = asked.command("why")
    if not lacking:
        return "Look at what costs most", look
    fixes = [(check, check["fix"]) for check in lacking if check["fix"]]
    rights = [GIVES[check["what"]] for check, fix in fixes if BY_ROOT in fix]
    if rights:
        return f"Root's rights for the probe give you {', '.join(rights)}", asked.with_rights()
    for check, fix in fixes:
        if fix.startswith(SUDO):
            typed = asked.with_rights(fix.removeprefix(SUDO))
            return f"This gives you {GIVES[check['what']]}", typed
    if writable and not any(check["what"] == COUNTERS for check, _ in fixes):
        step = (
            f"Registers can give you {GIVES[COUNTERS]}: perftop programs them, and gives them back"
        )
        return step, asked.command("--source", "msr")
    if fixes:
        check, fix = fixes[0]
        return f"For {GIVES[check['what']]}: {fix}", look
    return "Nothing more can be had here", look
