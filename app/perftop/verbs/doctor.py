"""Draws the answer of `perfprobe doctor`: what can be read here, what not, why, and the fix; at its
end the best next step, and what to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from perfprobe.frozen import frozen
from perftop.base.text import in_ascii, machine, mark, wrapped

Answer = dict[str, Any]
INDENT = 20
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


HERE = Asked()


def draw(
    answer: Answer, width: int = 100, *, unicode: bool = True, asked: Asked = HERE
) -> list[str]:
    lines = [" · ".join(machine(answer)), ""]
    for check in answer["checks"]:
        more = ("without it: ", check["lost"]), ("fix: ", check["fix"])
        lines += _told(check, check["why"], more, width, unicode=unicode)
    lines += ["", *_verdict(answer, width)]
    if items := answer.get("readiness"):
        lines += ["", "Benchmarks here:"]
        for item in items:
            more = ("", item["effect"]), ("to change: ", item["change"])
            lines += _told(item, item["now"], more, width, unicode=unicode)
    lines.append("")
    for sentence in sentences(answer, asked):
        lines += wrapped(sentence, width, 0)
    return lines if unicode else [in_ascii(line) for line in lines]


def _told(
    item: Answer, now: str, more: Sequence[tuple[str, str | None]], width: int, *, unicode: bool
) -> list[str]:
    """A check: its sign, what it is and how it stands; below that what else is known of it."""
    sign = mark(item["state"], unicode=unicode)
    lines = wrapped(f"{sign} {item['what']:<{INDENT - 2}}{now}", width, INDENT)
    for label, text in more:
        lines += wrapped(f"{'':{INDENT}}{label}{text}", width, INDENT) if text else []
    return lines


def _verdict(answer: Answer, width: int) -> list[str]:
    """The lines on what perftop uses and what it cannot measure here."""
    rows = [("source", answer["source"]), ("SMT method", answer["smt_method"] or "none")]
    for name in ("tsc_hz", "base_hz"):
        rate = answer[name]
        if rate:
            error = f", within {rate['error'] * 1e6:.1f} ppm" if rate["error"] else ""
            rows.append((name, f"{rate['hz'] / 1e6:.3f} MHz, {rate['origin']}{error}"))
        else:
            rows.append((name, "unknown"))
    rows += [
        (f"{m['counter']} tick", f"x {m['factor']:g} TSC ticks: {m['why']}")
        for m in answer["multipliers"]
    ]
    reasons: dict[str, list[str]] = {}
    for missing in answer["missing"]:
        reasons.setdefault(missing["why"], []).append(missing["what"])
    rows += [("n/a", f"{', '.join(keys)}: {why}") for why, keys in reasons.items()]
    return [
        line
        for key, text in rows
        for line in wrapped(f"  {key:<{INDENT - 2}}{text}", width, INDENT)
    ]


# --- the last lines


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
