"""What this process may do, and what the kernel hides from it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from perfprobe.cpu import files, identity
from perfprobe.frozen import frozen

CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF = 19, 21, 38, 39
FIRST_PID_NAMESPACE = "pid:[4026531836]"
MOUNTS = 1 << 20  # bytes read of mountinfo: some thousand mounts
STATUS = 1 << 14  # bytes read of our own status: many groups, and lists of many CPUs


@frozen
class Trouble:
    """Why something cannot be had, and the remedy if there is one."""

    why: str
    fix: str | None = None


def capable(root: Path, *capabilities: int) -> bool:
    """Whether the effective set has one of these capabilities."""
    try:
        effective = int(status(root, "CapEff")[0], 16)
    except (IndexError, ValueError):
        return False
    return any(effective >> bit & 1 for bit in capabilities)


def perf_refused(root: Path) -> Trouble | None:
    """Why the kernel refuses perf counters of whole CPUs to this process; None: it does not."""
    level = files.word(f"{root}/proc/sys/kernel/perf_event_paranoid")
    if not level.isdigit() or int(level) <= 0:
        return None
    if identity.user_namespace(root):
        why = f"root in a user namespace has no right to it, and perf_event_paranoid is {level}"
        fix = "start perftop outside, or there: sudo sysctl kernel.perf_event_paranoid=0"
        return Trouble(why, fix)
    if not capable(root, CAP_PERFMON, CAP_SYS_ADMIN):
        why = f"needs CAP_PERFMON or kernel.perf_event_paranoid <= 0, it is {level}"
        if os.geteuid() == 0:
            return Trouble(why, as_root(root, "CAP_PERFMON"))
        return Trouble(why, "perftop --sudo, or sudo sysctl kernel.perf_event_paranoid=0")
    if int(level) >= 3 and not capable(root, CAP_SYS_ADMIN):  # a patch of Debian and Ubuntu
        why = f"perf_event_paranoid is {level}: CAP_PERFMON is not enough, it needs CAP_SYS_ADMIN"
        return Trouble(why, "perftop --sudo, or sudo sysctl kernel.perf_event_paranoid=2")
    return None


def as_root(root: Path, *capabilities: str) -> str:
    """The remedy where the kernel asks for root, or for these capabilities. A container's root does
    not have them all."""
    if identity.user_namespace(root):
        return "start perftop outside this user namespace, as root"
    if os.geteuid() == 0:
        lacking = " and ".join(capabilities)
        return f"give root here {lacking}, or start perftop outside the container"
    return "perftop --sudo"


def filtered(root: Path) -> bool:
    """Whether a container's seccomp filter restricts our system calls."""
    return status(root, "Seccomp") == ["2"]


def status(root: Path, field: str) -> list[str]:
    """The words of a field in /proc/self/status."""
    for line in (files.text(f"{root}/proc/self/status", STATUS) or "").splitlines():
        if line.startswith(f"{field}:"):
            return line.split()[1:]
    return []


def no_pmu(root: Path) -> Trouble:
    guest = identity.virtualisation(root)
    if guest is None:
        return Trouble("the kernel offers no core PMU")
    named = "" if guest == "hypervisor" else f" ({guest})"
    why = f"no core PMU in this guest{named}: the hypervisor does not expose one"
    return Trouble(why, "ask for a vPMU, or use a metal instance")


def hidden_tasks(root: Path) -> Trouble | None:
    """Why some processes are not visible in /proc; None: all are visible."""
    with suppress(OSError):
        if str((root / "proc/self/ns/pid").readlink()) != FIRST_PID_NAMESPACE:
            why = "in a PID namespace: processes outside this container are hidden"
            return Trouble(why, "start perftop outside the container")
    level = hiding(root)
    if not level or capable(root, CAP_SYS_PTRACE):
        return None
    why = f"processes of other users are hidden: /proc is mounted with hidepid={level}"
    return Trouble(why, "run perftop with --sudo, or: sudo mount -o remount,hidepid=0 /proc")


def hiding(root: Path) -> str:
    """The mount option by which /proc hides processes of others from our user without
    CAP_SYS_PTRACE; empty: it hides none."""
    options = ""
    for line in (files.text(f"{root}/proc/self/mountinfo", MOUNTS) or "").splitlines():
        place, _, about = line.partition(" - ")
        if place.split()[4:5] == ["/proc"]:  # the last mount on a place hides earlier ones
            options = about.split()[-1] if about else ""
    given = dict(option.partition("=")[::2] for option in options.split(","))
    level = given.get("hidepid", "off")
    groups = {*status(root, "Gid")[-1:], *status(root, "Groups")}
    ours = given.get("gid", "0") in groups and level not in {"ptraceable", "4"}
    return "" if ours or level in {"off", "0"} else level


def accounts_delays(root: Path) -> bool:
    """Whether the kernel accounts for how long tasks wait for a disk."""
    return files.word(f"{root}/proc/sys/kernel/task_delayacct") == "1"
