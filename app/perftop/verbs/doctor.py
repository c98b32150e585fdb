"""`perftop doctor`: lists the sources of counters that work on this machine, and for each other
source the reason and the fix. The last line is the command to type next. `--check` only compares
settings of the machine with rules, for job prologs and CI."""

from __future__ import annotations

import argparse
import functools
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perftop.base import text
from perftop.base.errors import USAGE, Failed
from perftop.verbs import machine, options
from perftop.verbs.machine import Answer, fact_lines

PROC, COUNTERS = "/proc", "perf counters"
PROVIDED_NUMBERS = {
    PROC: "utilisation, steal, tasks and what they wait for",
    COUNTERS: "clock, IPC, halts",
    "MSRs": "ceilings and causes of a low clock",
    "idle transitions": "busy time to the microsecond",
}
"""Numbers that each source provides, by the name of its check. All other sources need the first
one."""
ROOT_COMMAND = "perftop --sudo"
"""Contained in the text of every fix that needs root."""
SUDO = "sudo "
RULES = {
    "governor": "governor", "turbo": "turbo", "smt": "SMT", "quota": "CPU quota",
    "mask": "CPU mask", "load": "other load", "isolated": "isolated CPUs",
    "watchdog": "NMI watchdog", "slack": "timer slack", "clocksource": "clock source",
    "hypervisor": "hypervisor",
}  # fmt: skip
STATES = dict.fromkeys(("turbo", "smt", "watchdog"), ("on", "off")) | {"load": ("idle", "busy")}
"""The possible states of these conditions. Other conditions have states that are not known in
advance."""
DEFAULT_RULES = ("governor=performance", "turbo=on", "quota=none", "mask=none", "load=idle")
"""Rules of `--check` without arguments. A condition that cannot be read is not a failure."""
BROKEN_STATUS = 1
CHECK_INDENT = 24


def add_parser(subparsers: Any) -> None:
    text = "show what can be read here, what cannot and why, and how to see more"
    parser = options.add_verb(subparsers, "doctor", run, text, machine=True)
    options.add_json_options(parser)
    text = (
        "check only the settings that affect benchmarks; exit with status 1 if a RULE is broken, "
        f"or if a given one cannot be checked (default: {' '.join(DEFAULT_RULES)}). A RULE is "
        "NAME=STATE, or NAME alone for the state that disturbs benchmarks least (turbo alone: off; "
        f"perftop help sources lists them). Names: {', '.join(RULES)}"
    )
    parser.add_argument("--check", nargs="*", metavar="RULE", help=text)


def run(args: argparse.Namespace) -> int:
    if args.check is not None:
        with machine.checked_answer(args):
            return _check_rules(args, args.check)
    host, program = args.host, None
    sysroot = None if args.sysroot is None else str(args.sysroot)
    root = host.startswith("root@") if host else os.geteuid() == 0
    if not host and not root and shutil.which("sudo") is None:
        program = str(Path(sys.executable).with_name("perftop"))
    request = ExaminedMachine(host, args.remote, sysroot, root, args.sudo, program)
    return machine.ask_and_print(
        args, functools.partial(doctor_lines, examined_machine=request), "doctor"
    )


# --- conditions


class RuleOutcome(NamedTuple):
    """The result of checking one rule."""

    rule: str
    state: Literal["holds", "broken", "unknown"]
    now: str
    change: str | None


def _check_rules(args: argparse.Namespace, rules: Sequence[str]) -> int:
    """Prints one line per rule. Returns BROKEN_STATUS if a rule is broken, or if a rule given by
    the user cannot be checked; else 0."""
    for rule in rules:
        if rule.endswith("="):
            raise Failed(f"--check: {rule!r} has no state (is a variable unset?)", USAGE)
        name, _, state = rule.partition("=")
        if state and state not in STATES.get(name, (state,)):
            states = ", ".join(f"{name}={known}" for known in STATES[name])
            raise Failed(f"--check: unknown state {state!r}; known: {states}", USAGE)
        if name not in RULES:
            rule_names = ", ".join(RULES)
            hint = text.did_you_mean(name, RULES, f"conditions: {rule_names}")
            raise Failed(f"--check: unknown condition {name!r}{hint}", USAGE)
    items = {item["what"]: item for item in machine.ask_machine(args, "doctor")["readiness"]}
    outcomes = [rule_outcome(rule, items) for rule in rules or DEFAULT_RULES]
    failing = {"broken", "unknown"} if rules else {"broken"}
    is_broken = any(outcome.state in failing for outcome in outcomes)
    result = {"type": "check", "holds": not is_broken, "rules": [o._asdict() for o in outcomes]}
    machine.print_answer(result, _outcome_lines, as_json=args.json)
    return BROKEN_STATUS if is_broken else 0


def rule_outcome(rule: str, items: Mapping[str, Answer]) -> RuleOutcome:
    """Compares a rule with the state of its condition. A rule without a value requires the state
    that disturbs benchmarks least."""
    name, _, wanted_value = rule.partition("=")
    item = items.get(RULES[name])
    if item is None or item["state"] == "unknown":
        return RuleOutcome(rule, "unknown", "not known" if item is None else item["now"], None)
    holds = item["value"] == wanted_value if wanted_value else item["state"] == "ready"
    return RuleOutcome(rule, "holds" if holds else "broken", item["now"], item["change"])


def _outcome_lines(answer: Answer, width: int, *, unicode: bool) -> list[str]:
    lines = []
    for rule in answer["rules"]:
        sign = text.state_mark(rule["state"], unicode=unicode)
        lines += fact_lines(f"{sign} {rule['rule']}", rule["now"], width, CHECK_INDENT)
        if rule["state"] == "broken" and rule["change"]:
            lines += fact_lines("", f"to change: {rule['change']}", width, CHECK_INDENT)
    return lines


# --- the screen of doctor


class ExaminedMachine(NamedTuple):
    """The machine that `perftop doctor` examines, and how to run perftop there."""

    host: str | None = None
    remote: str | None = None
    sysroot: str | None = None
    """Directory whose proc, sys and dev are read in place of the machine's own."""
    root: bool = False
    """Whether the probe runs as root even without --sudo."""
    sudo: bool = False
    program: str | None = None
    """Path of perftop if only `su` can start it as root, because there is no sudo; else None."""

    def command(self, *words: str, sudo: bool = False, program: str = "perftop") -> str:
        """Returns a command line that runs perftop with these arguments and the options for the
        same machine."""
        host_options = ["--host", self.host] if self.host is not None else []
        host_options += ["--remote", self.remote] if self.remote is not None else []
        host_options += ["--sysroot", self.sysroot] if self.sysroot is not None else []
        return shlex.join(
            [program, *words, *host_options, *(["--sudo"] if sudo or self.sudo else [])]
        )

    def root_screen_command(self, first: str = "") -> str:
        """Returns a shell command that runs `first` as root and then starts perftop as root."""
        if self.program is not None:
            screen = self.command(program=self.program)
            return f"su -c {shlex.quote(f'{first} && {screen}' if first else screen)}"
        screen = self.command(sudo=not self.root)
        if not first:
            return screen
        remotely = "" if self.host is None else f"ssh -t {shlex.quote(self.host)} "
        return f"{remotely}{'' if self.root else SUDO}{first} && {screen}"


THIS_MACHINE = ExaminedMachine()


def doctor_lines(
    answer: Answer, width: int, *, unicode: bool, examined_machine: ExaminedMachine = THIS_MACHINE
) -> list[str]:
    def check_lines(item: Answer, now: str, details: Sequence[tuple[str, str | None]]) -> list[str]:
        """Returns the lines of a check: its mark, name and state, then the missing numbers and the
        fix."""
        sign = text.state_mark(item["state"], unicode=unicode)
        lines = fact_lines(f"{sign} {item['what']}", now, width)
        for label, value in details:
            lines += fact_lines("", f"{label}{value}", width) if value else []
        return lines

    lines = [" · ".join(text.describe_machine(answer)), ""]
    for check in answer["checks"]:
        fix = (check["fix"] or "").replace(ROOT_COMMAND, examined_machine.root_screen_command())
        details = ("without it: ", check["lost"]), ("fix: ", fix)
        lines += check_lines(check, check["why"], details)
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
    rows += [("n/a", f"{', '.join(keys)}: {reason}") for reason, keys in reasons.items()]
    lines.append("")
    for key, value in rows:
        lines += fact_lines(f"  {key}", value, width)
    if items := answer.get("readiness"):
        lines += ["", "Benchmarks here:"]
        for item in items:
            details = ("", item["effect"]), ("to change: ", item["change"])
            lines += check_lines(item, item["now"], details)
    lines.append("")
    *sentences, typed_command = final_sentences(answer, examined_machine)
    for sentence in sentences:
        lines += text.wrap_indented(sentence, width, 0)
    return [*lines, typed_command]  # not wrapped: a shell would run its first half when copied


# --- the final lines


def final_sentences(answer: Answer, examined_machine: ExaminedMachine) -> list[str]:
    """Returns sentences: which numbers perftop can read, the best next step, and the command for
    it."""
    checks = {check["what"]: check for check in answer["checks"]}
    missing_sources = [
        source for source in PROVIDED_NUMBERS if checks.get(source, {}).get("state") == "not usable"
    ]
    usable, missing_numbers = list[str](), list[str]()
    for source, number_list in PROVIDED_NUMBERS.items():
        if source in checks:
            numbers = number_list.split(", ")
            missing = (checks[source].get("lost") or "").split(", ")
            missing = numbers if source in missing_sources else missing
            usable += [number for number in numbers if number not in missing]
            missing_numbers += [number for number in numbers if number in missing]
    if PROC not in checks:  # this source has a check only if it is missing
        usable.append(PROVIDED_NUMBERS[PROC])
    summary = f"You have {', '.join(usable) or 'little'}"
    if missing_numbers:
        summary += f"; missing: {', '.join(missing_numbers)}"
    can_program = COUNTERS in missing_sources and checks.get("MSRs", {}).get("state") == "usable"
    # The next step is the one that adds most of the missing numbers.
    fixes = {source: fix for source in missing_sources if (fix := checks[source]["fix"])}
    sudo_source = next((source for source, fix in fixes.items() if fix.startswith(SUDO)), None)
    rights = [PROVIDED_NUMBERS[source] for source, fix in fixes.items() if ROOT_COMMAND in fix]
    step, command = "Nothing more is available here", examined_machine.command("why")
    if not missing_sources:
        step = "See what costs the most time"
    elif rights:
        step = f"With root privileges, the probe also reads {', '.join(rights)}"
        command = examined_machine.root_screen_command()
    elif sudo_source is not None:
        step = f"This gives you {PROVIDED_NUMBERS[sudo_source]}"
        command = examined_machine.root_screen_command(fixes[sudo_source].removeprefix(SUDO))
    elif can_program and COUNTERS not in fixes:
        step = f"--source msr gives you {PROVIDED_NUMBERS[COUNTERS]}: it programs registers and"
        step, command = f"{step} restores them", examined_machine.command("--source", "msr")
    elif fixes:
        source, fix = next(iter(fixes.items()))
        step = f"For {PROVIDED_NUMBERS[source]}: {fix}"
    return [f"{summary}.", f"{step}.", f"Type: {command}"]
