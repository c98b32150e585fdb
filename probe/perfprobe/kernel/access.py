"""Privileges of this process: the files and events that it may read, and the capabilities that
perfprobe keeps after it has opened them."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfprobe._native import lib
from perfprobe.cpu import cpu_sets, files, identity
from perfprobe.errors import check_result
from perfprobe.wire import Missing

CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF = 19, 21, 38, 39
FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's first PID namespace, as /proc/PID/ns/pid names it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why something is not available, and the remedy if there is one."""

    why: str
    fix: str | None = None

    def missing(self, *keys: str) -> list[Missing]:
        """Returns the entries of hello for counters that are missing for this reason."""
        return [Missing(key, self.why, self.fix) for key in keys]


def has_capability(root: Path, *capabilities: int) -> bool:
    """Returns whether this process has at least one of these capabilities in effect."""
    try:
        effective = int(own_status(root, "CapEff")[0], 16)
    except (IndexError, ValueError):
        return False
    return any(effective >> bit & 1 for bit in capabilities)


def perf_problem(root: Path) -> Problem | None:
    """Returns why this process may not count perf events of whole CPUs; None if it may."""
    level = files.read_word(f"{root}/proc/sys/kernel/perf_event_paranoid")
    if not level.isdigit() or int(level) <= 0:
        return None
    if identity.is_in_user_namespace(root):
        text = f"root in a user namespace may not use perf, and perf_event_paranoid is {level}"
        fix = "start perftop outside, or there: sudo sysctl kernel.perf_event_paranoid=0"
        return Problem(text, fix)
    if not has_capability(root, CAP_PERFMON, CAP_SYS_ADMIN):
        text = f"needs CAP_PERFMON or kernel.perf_event_paranoid <= 0 (it is {level})"
        if os.geteuid() == 0:
            return Problem(text, root_remedy(root, "CAP_PERFMON"))
        return Problem(text, "perftop --sudo, or sudo sysctl kernel.perf_event_paranoid=0")
    # Only kernels of Debian and Ubuntu have these levels.
    if int(level) >= 3 and not has_capability(root, CAP_SYS_ADMIN):
        text = f"perf_event_paranoid is {level}: CAP_PERFMON is not enough, CAP_SYS_ADMIN is needed"
        return Problem(text, "perftop --sudo, or sudo sysctl kernel.perf_event_paranoid=2")
    return None


_PERF_ERRORS: dict[int, Problem] = {
    errno.ENOENT: Problem("this CPU, or its hypervisor, has no such event"),
    errno.ENODEV: Problem("the PMU does not count on this CPU, or the CPU is offline"),
    errno.EINVAL: Problem(
        "this CPU, or its hypervisor, has no counter for it, or the kernel does not know the event"
    ),
    errno.EOPNOTSUPP: Problem("the PMU cannot count it in this way, or is given to guests"),
    errno.EBUSY: Problem("another tool or the firmware holds the PMU", "stop the other tool"),
    errno.EMFILE: Problem(
        "not enough file descriptors: the hard limit is {limit}",
        "raise it (root: ulimit -Hn 65536; a service: LimitNOFILE=65536)",
    ),
    errno.ENFILE: Problem("the system has no file descriptors left", "sysctl fs.file-max=1000000"),
    errno.ENOMEM: Problem("the kernel has no memory for it"),
    errno.E2BIG: Problem("this kernel is too old for the request"),
    errno.ENOSYS: Problem(
        "this kernel or container has no perf_event_open",
        "a kernel with CONFIG_PERF_EVENTS, or a seccomp profile that allows perf_event_open",
    ),
}


def perf_open_problem(error: OSError, root: Path = Path("/")) -> Problem:
    """Returns why perf_event_open failed with this error, and the remedy. The kernel's own check of
    permissions fails with EACCES, a container's seccomp filter with EPERM."""
    number = error.errno or 0
    if number in {errno.EACCES, errno.EPERM}:
        is_filtered, refused = is_seccomp_filtered(root), perf_problem(root)
        if refused is not None and not (is_filtered and number == errno.EPERM):
            return refused
        if is_filtered:
            return Problem(
                "perf_event_open is refused, it seems by the container's seccomp filter",
                "run outside the container, or allow perf_event_open and add CAP_PERFMON",
            )
        return Problem("perf_event_open is refused by a security module", "ask its administrator")
    if number == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        reason = _PERF_ERRORS[number]
        return Problem(reason.why.format(limit=limit), reason.fix)
    return _PERF_ERRORS.get(number) or Problem(f"the kernel refuses it: {os.strerror(number)}")


def root_remedy(root: Path, *capabilities: str) -> str:
    """Returns the remedy if root or these capabilities are needed; root may lack some of them."""
    if identity.is_in_user_namespace(root):
        return "start perftop outside this user namespace, as root"
    if os.geteuid() == 0:
        names = " and ".join(capabilities)
        return f"give root {names} here, or start perftop outside the container"
    return "perftop --sudo"


def is_seccomp_filtered(root: Path) -> bool:
    """Returns whether a seccomp filter, such as a container's, restricts this process."""
    return own_status(root, "Seccomp") == ["2"]


def own_status(root: Path, field: str) -> list[str]:
    """Returns the words of a field in /proc/self/status."""
    for line in files.read_text(f"{root}/proc/self/status").splitlines():
        if line.startswith(f"{field}:"):
            return line.split()[1:]
    return []


def allowed_cpus(root: Path) -> set[int]:
    """Returns the CPUs on which this process may run; empty if they are unknown."""
    try:
        return set(cpu_sets.parse("".join(own_status(root, "Cpus_allowed_list"))))
    except ValueError:
        return set()


def no_pmu_problem(root: Path) -> Problem:
    guest = identity.virtualisation(root)
    if guest is None:
        return Problem("the kernel offers no core PMU")
    guest_text = "" if guest == "hypervisor" else f" ({guest})"
    reason = f"no core PMU in this guest{guest_text}: the hypervisor does not expose one"
    return Problem(reason, "ask for a vPMU, or use a metal instance")


def hidden_tasks_problem(root: Path) -> Problem | None:
    """Returns why some processes are not visible in /proc; None if all are visible."""
    with suppress(OSError):
        if str((root / "proc/self/ns/pid").readlink()) != FIRST_PID_NAMESPACE:
            reason = "in a PID namespace: processes outside this container are hidden"
            return Problem(reason, "start perftop outside the container")
    level = hidepid_level(root)
    if not level or has_capability(root, CAP_SYS_PTRACE):
        return None
    reason = f"processes of other users are hidden: /proc is mounted with hidepid={level}"
    return Problem(reason, "run perftop with --sudo, or: sudo mount -o remount,hidepid=0 /proc")


def hidepid_level(root: Path) -> str:
    """Returns the level of /proc's mount option hidepid if it hides other users' processes from a
    user without CAP_SYS_PTRACE; empty if none are hidden."""
    options = ""
    for line in files.read_text(f"{root}/proc/self/mountinfo", files.MAX_LARGE_BYTES).splitlines():
        mount, _, filesystem = line.partition(" - ")
        if mount.split()[4:5] == ["/proc"]:  # the last mount on a directory hides earlier mounts
            options = filesystem.split()[-1] if filesystem else ""
    values = dict(option.partition("=")[::2] for option in options.split(","))
    level = values.get("hidepid", "off")
    groups = {*own_status(root, "Gid")[-1:], *own_status(root, "Groups")}
    is_exempt = values.get("gid", "0") in groups and level not in {"ptraceable", "4"}
    return "" if is_exempt or level in {"off", "0"} else level


# --- dropping capabilities ------------------------------------------------------------------------
# Open descriptors stay readable without capabilities. A few capabilities are kept, to open files
# and events again when a CPU comes online. The user ID is also kept, because MSR devices, journals
# and some files of /sys belong to root. No seccomp filter is set: a new version of Python or of the
# C library may use other system calls, and the filter would then kill a perfprobe that has
# programmed MSRs.

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_RAWIO = 1, 2, 17
BPF_RUN_VERSION = (5, 19)
"""The first Linux version in which a loaded BPF program may be run without a capability."""
_REAL_ROOT = Path("/")
"""Capabilities are checked against this machine's kernel, even under a sysroot."""


def drop_capabilities(root: Path, source: str, *, watches_job: bool = False) -> None:
    """Drops the calling thread's capabilities that perfprobe no longer needs. Later imports may
    fail: without capabilities, root cannot read a user's home, where perfprobe may be installed."""
    needed = needed_capabilities(root, source, watches_job=watches_job)
    mask = sum(1 << capability for capability in set(needed))
    with suppress(OSError):  # a service's seccomp filter may refuse this
        check_result(lib.pp_keep_capabilities(mask))


def needed_capabilities(root: Path, source: str, *, watches_job: bool = False) -> Iterator[int]:
    """Yields the capabilities that perfprobe still needs after it has opened this source.
    `watches_job`: it must read in which kernel function a more privileged thread waits."""
    if os.geteuid() != 0:
        yield from (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)  # needed to open files that root owns
    if watches_job or hidepid_level(_REAL_ROOT):
        yield CAP_SYS_PTRACE
    if source in {"auto", "perf", "msr"} and any(root.glob("dev/cpu/*/msr")):
        yield CAP_SYS_RAWIO
    if source in {"auto", "perf"}:
        yield CAP_PERFMON
        last = files.read_number(f"{_REAL_ROOT}/proc/sys/kernel/cap_last_cap") or 0
        level = files.read_number(f"{_REAL_ROOT}/proc/sys/kernel/perf_event_paranoid") or 0
        if last < CAP_PERFMON or level >= 3:  # then perf events of whole CPUs need this one
            yield CAP_SYS_ADMIN
    version = re.match(r"([0-9]+)\.([0-9]+)", identity.kernel_release())
    if version is None or tuple(map(int, version.groups())) < BPF_RUN_VERSION:
        yield CAP_BPF
        yield CAP_SYS_ADMIN  # before Linux 5.8, in place of CAP_BPF
