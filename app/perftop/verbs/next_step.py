"""The last lines of `perftop doctor`: what there is here, the best next step, and what to type."""

from __future__ import annotations

from typing import Any

Answer = dict[str, Any]
GIVES = {
    "perf counters": "clock, IPC, halts",
    "MSRs": "ceilings and causes of a low clock",
    "idle transitions": "busy time to the microsecond",
}
"""What a source gives by which a machine is judged, the most important first."""
ALWAYS = "utilisation, steal, tasks and whom they wait for"
BY_ROOT = ("run perftop as root", "perftop --sudo")
"""Parts of remedies that more rights are."""


def sentences(answer: Answer, where: str = "") -> list[str]:
    """At most three. `where`: options that name the machine, with a blank before them."""
    checks = {check["what"]: check for check in answer["checks"] if check["what"] in GIVES}
    there = [GIVES[what] for what in GIVES if _usable(checks, what)]
    lacking = [what for what in GIVES if what in checks and not _usable(checks, what)]
    found = f"You have {', '.join([*there, ALWAYS])}"
    if lacking:
        found += f"; not: {', '.join(GIVES[what] for what in lacking)}"
    step, typed = _step([checks[what] for what in lacking], where)
    return [f"{found}.", *([f"{step}."] if step else []), f"Type: {typed}"]


def _usable(checks: dict[str, Answer], what: str) -> bool:
    return what in checks and checks[what]["state"] != "not usable"


def _step(lacking: list[Answer], where: str) -> tuple[str, str]:
    """What gives most of what is lacking, and the command for it; '' if nothing does."""
    look = f"perftop why{where}"
    if not lacking:
        return "Look at what costs most", look
    fixes = [(check, check["fix"]) for check in lacking if check["fix"]]
    rights = [GIVES[check["what"]] for check, fix in fixes if any(part in fix for part in BY_ROOT)]
    if rights:
        return f"Root's rights for the probe give you {', '.join(rights)}", (
            f"perftop{where} --sudo"
        )
    for check, fix in fixes:
        if fix.startswith("sudo "):
            return f"This gives you {GIVES[check['what']]}", f"{fix} && perftop{where} --sudo"
    if fixes:
        check, fix = fixes[0]
        return f"For {GIVES[check['what']]}: {fix}", look
    return "Nothing more can be had here", look
