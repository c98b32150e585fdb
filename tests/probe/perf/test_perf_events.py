"""Groups of perf events: order of opening, events dropped if counters run short, and reasons."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path

import fakeperf
import pytest
import trees
from command import python
from fakeperf import TICKS

from perfprobe.kernel import access
from perfprobe.perf.perf_events import (
    HARDWARE,
    TOO_FEW_COUNTERS,
    Event,
    OpenedEvents,
    Trial,
    group_fits,
    open_group,
    run_in_threads,
)

REF = Event("ref", HARDWARE, 9)
CYCLES = Event("cycles", HARDWARE, 0)
INSTRUCTIONS = Event("instructions", HARDWARE, 1)
KERNEL_INSTRUCTIONS = Event("kernel_instructions", HARDWARE, 1, kernel_only=True)
KERNEL_CYCLES = Event("kernel_cycles", HARDWARE, 0, kernel_only=True)
ONE = Event("one_thread", 4, 0x23C, role="smt")
DISTRIBUTED = Event("distributed", 4, 0x83C, role="smt")
ALL = [REF, CYCLES, INSTRUCTIONS, KERNEL_INSTRUCTIONS, KERNEL_CYCLES, ONE, DISTRIBUTED]


def run(kernel: fakeperf.Kernel, events: list[Event] = ALL) -> OpenedEvents:
    return open_group(kernel, events, 3, timed=True, with_trial=True)


def keys(opened: OpenedEvents) -> list[str]:
    return [event.key for event in opened.events]


# --- too few counters -----------------------------------------------------------------------------

ORDER = ["kernel_instructions", "kernel_cycles", "one_thread", "instructions", "cycles"]


@pytest.mark.parametrize("free", [6, 5, 4, 3, 2, 1])
@pytest.mark.parametrize("how", ["refused", "held by others"])
def test_the_order_in_which_events_are_dropped(free: int, how: str) -> None:
    gone = ORDER[: 6 - free]
    kernel = fakeperf.Kernel(free) if how == "refused" else fakeperf.Kernel(8, taken=8 - free)
    opened = run(kernel)
    assert keys(opened) == [e.key for e in ALL[:6] if e.key not in gone]
    assert sorted(opened.missing) == sorted(gone)
    for reason in opened.missing.values():
        if how == "refused":  # an empty PMU refuses it: no program holds a counter
            assert reason == TOO_FEW_COUNTERS
            continue
        assert reason.why.startswith(f"only {free} counters free: the NMI watchdog or another tool")
        assert reason.fix == "sysctl kernel.nmi_watchdog=0"
    live = [group for group in kernel.groups if not group.closed]
    assert live == [opened.group]


def test_all_events_are_missing_without_a_free_counter() -> None:
    kernel = fakeperf.Kernel(8, taken=8)
    opened = run(kernel)
    assert opened.group is None
    assert set(opened.missing) == {e.key for e in ALL[:6]}
    assert all(group.closed for group in kernel.groups)


def test_a_rotated_group_is_given_time_for_its_turn() -> None:
    """Other groups take turns with the group. Only pinned events keep their counters."""
    kernel = fakeperf.Kernel(8, turns={3: 8})
    opened = run(kernel)
    assert opened.missing == {}
    assert opened.group is not None
    assert [group for group in kernel.groups if not group.closed] == [opened.group]
    assert not any(event.pinned for event, _ in kernel.open_events(3))
    both = run(fakeperf.Kernel(8, taken=3, turns={3: 5}))
    assert keys(both) == ["ref", "cycles", "instructions", "kernel_cycles", "one_thread"]


def test_a_counter_that_stopped_in_only_one_trial_is_used() -> None:
    """The hypervisor stopped the CPU between two reads."""
    kernel = fakeperf.Kernel()
    plain, trials = kernel.trial, list[int]()

    def lower_first_count(group: fakeperf.Group, cpu: int, cpu_ns: int) -> Trial:
        trial = plain(group, cpu, cpu_ns)
        trials.append(cpu_ns)
        share = 0.1 if len(trials) < 3 else 0.5
        return replace(trial, counts=[int(share * TICKS), *trial.counts[1:]])

    kernel.trial = lower_first_count  # type: ignore[method-assign]
    assert run(kernel).missing == {}
    assert len(trials) == 3


def test_counts_of_a_part_of_the_trial_are_compared_with_this_part() -> None:
    kernel = fakeperf.Kernel()
    plain = kernel.trial

    def count_an_eighth(group: fakeperf.Group, cpu: int, cpu_ns: int) -> Trial:
        trial = plain(group, cpu, cpu_ns)
        return replace(trial, counts=[n // 8 for n in trial.counts], counted_share=1 / 8)

    kernel.trial = count_an_eighth  # type: ignore[method-assign]
    assert "ref" not in run(kernel).missing


def test_the_trial_with_the_fewest_implausible_counts_decides() -> None:
    kernel = fakeperf.Kernel()
    plain, trials = kernel.trial, list[int]()

    def stop_two_counters_first(group: fakeperf.Group, cpu: int, cpu_ns: int) -> Trial:
        trial = plain(group, cpu, cpu_ns)
        trials.append(cpu_ns)
        stopped = {0, 1} if len(trials) == 1 else {1} if len(trials) <= 3 else set()
        return replace(trial, counts=[0 if i in stopped else n for i, n in enumerate(trial.counts)])

    kernel.trial = stop_two_counters_first  # type: ignore[method-assign]
    assert run(kernel).missing.keys() == {ALL[1].key}


@pytest.mark.parametrize(("error", "fits"), [(errno.EIO, False), (errno.EPERM, True)])
def test_a_group_that_cannot_be_read_does_not_fit(error: int, fits: bool) -> None:
    """Reading a pinned group that got no counters fails with EIO; other errors do not show whether
    counters are free."""
    kernel = fakeperf.Kernel()

    def trial(group: fakeperf.Group, cpu: int, cpu_ns: int) -> Trial:
        raise OSError(error, os.strerror(error))

    kernel.trial = trial  # type: ignore[method-assign]
    assert group_fits(kernel, ALL[:2], 0) is fits
    assert all(group.closed for group in kernel.groups)


# --- counters that do not count -------------------------------------------------------------------


def test_no_counter_is_used_if_all_are_stopped() -> None:
    kernel = fakeperf.Kernel(moved=dict.fromkeys([event.key for event in ALL], 0))
    opened = run(kernel)
    assert opened.group is None
    assert opened.missing["one_thread"].why == opened.missing["ref"].why


@pytest.mark.parametrize(
    ("share", "fine"), [(0.19, True), (0.17, False), (0.3, True), (1.04, True), (1.06, False)]
)
def test_reference_cycles_follow_the_tsc(share: float, fine: bool) -> None:
    """The thread ran for 0.9 of the trial; the minimum of the count is a fifth of that time."""
    opened = run(fakeperf.Kernel(moved={"ref": int(share * TICKS)}))
    assert ("ref" in keys(opened)) is fine
    assert ("ref" in opened.missing) is not fine


def test_aperf_and_mperf_must_give_a_plausible_clock() -> None:
    events = [
        Event(key, 9, i, is_core=False) for i, key in enumerate(("msr_tsc", "aperf", "mperf"))
    ]
    good = open_group(fakeperf.Kernel(), events, 0, timed=False, with_trial=True)
    assert keys(good) == ["msr_tsc", "aperf", "mperf"]
    for aperf, mperf in ((0, 0), (1000, 0), (1, 10_000), (100, 10_000), (9000, 1000), (9, 1)):
        kernel = fakeperf.Kernel(moved={"aperf": aperf, "mperf": mperf})
        opened = open_group(kernel, events, 0, timed=False, with_trial=True)
        assert "mperf" in opened.missing
        assert keys(opened)[0] == "msr_tsc"


# --- guests that own the PMU ----------------------------------------------------------------------


def test_host_only_is_not_used_if_it_does_not_help() -> None:
    kernel = fakeperf.Kernel(refuse=lambda _, __, ___: errno.EOPNOTSUPP)
    opened = run(kernel)
    assert opened.group is None
    assert "cannot count it in this way" in opened.missing["ref"].why


# --- reasons --------------------------------------------------------------------------------------

WHY = {
    errno.ENOENT: ("no such event", None),
    errno.ENODEV: ("does not count on this CPU", None),
    errno.EINVAL: ("does not know the event", None),
    errno.EOPNOTSUPP: ("cannot count it in this way", None),
    errno.EBUSY: ("holds the PMU", "stop the other tool"),
    errno.EMFILE: ("hard limit is", "ulimit -Hn"),
    errno.ENFILE: ("no file descriptors left", "fs.file-max"),
    errno.ENOMEM: ("no memory", None),
    errno.E2BIG: ("too old", None),
    errno.ENOSYS: ("no perf_event_open", "seccomp"),
    errno.EIO: (os.strerror(errno.EIO), None),
}


@pytest.mark.parametrize("number", WHY)
def test_every_errno_has_its_reason(number: int, tmp_path: Path) -> None:
    result = access.perf_open_problem(OSError(number, "x"), tmp_path)
    why, fix = WHY[number]
    assert why in result.why
    assert (result.fix is None) is (fix is None)
    assert fix is None or fix in (result.fix or "")


def write_rights(root: Path, paranoid: str, caps: int = 0, seccomp: int = 0) -> None:
    trees.put(root, "proc/sys/kernel/perf_event_paranoid", f"{paranoid}\n")
    status = f"Name:\tx\nCapEff:\t{caps:016x}\nSeccomp:\t{seccomp}\n"
    trees.put(root, "proc/self/status", status)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("level", ["1", "2", "4"])
def test_the_reason_names_the_paranoid_level(
    number: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rights(tmp_path, level)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = access.perf_open_problem(OSError(number, "x"), tmp_path)
    assert result.why == f"needs CAP_PERFMON or kernel.perf_event_paranoid <= 0 (it is {level})"
    assert result.fix == "perftop --sudo, or sudo sysctl kernel.perf_event_paranoid=0"


PERFMON, ADMIN = 1 << 38, 1 << 21


@pytest.mark.parametrize(("level", "caps", "expected"), [
    ("3", PERFMON, "CAP_SYS_ADMIN is needed"),
    ("4", PERFMON, "CAP_SYS_ADMIN is needed"),
    ("4", PERFMON | ADMIN, "a security module"),
    ("4", ADMIN, "a security module"),
    ("2", PERFMON, "a security module"),
])  # fmt: skip
def test_from_level_3_on_debian_needs_more_than_perfmon(
    level: str, caps: int, expected: str, tmp_path: Path
) -> None:
    write_rights(tmp_path, level, caps=caps)
    result = access.perf_open_problem(OSError(errno.EACCES, "x"), tmp_path)
    assert expected in result.why
    assert ("kernel.perf_event_paranoid=2" in (result.fix or "")) == ("SYS_ADMIN" in expected)


@pytest.mark.parametrize("caps", [0, PERFMON, (1 << 41) - 1])
def test_root_of_a_user_namespace_is_not_advised_to_become_root(caps: int, tmp_path: Path) -> None:
    write_rights(tmp_path, "2", caps=caps)
    trees.put(tmp_path, "proc/self/uid_map", "         0          0 4294967295\n")
    assert "namespace" not in access.perf_open_problem(OSError(errno.EACCES, "x"), tmp_path).why
    trees.put(tmp_path, "proc/self/uid_map", "         0       1000          1\n")
    result = access.perf_open_problem(OSError(errno.EACCES, "x"), tmp_path)
    assert "user namespace" in result.why
    assert result.fix is not None
    assert "--sudo" not in result.fix
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "0\n")
    assert "namespace" not in access.perf_open_problem(OSError(errno.EACCES, "x"), tmp_path).why


def test_a_container_answers_eperm(tmp_path: Path) -> None:
    write_rights(tmp_path, "2", seccomp=2)
    assert "seccomp" in access.perf_open_problem(OSError(errno.EPERM, "x"), tmp_path).why
    assert "paranoid" in access.perf_open_problem(OSError(errno.EACCES, "x"), tmp_path).why
    for caps in (1 << 38, 1 << 21):
        write_rights(tmp_path, "2", caps=caps, seccomp=2)
        assert "seccomp" in access.perf_open_problem(OSError(errno.EACCES, "x"), tmp_path).why
    for level in ("0", "-1"):
        write_rights(tmp_path, level)
        assert (
            "security module" in access.perf_open_problem(OSError(errno.EACCES, "x"), tmp_path).why
        )


def test_a_shortage_of_descriptors_is_reported() -> None:
    """Makes the real system call at the limit of open descriptors."""
    code = (
        "import os, resource as r\nfrom perfprobe.perf.perf_events import *\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (32, 32))\n"
        "try:\n"
        "    while True: Kernel().open(Event('x', 1, 0, is_core=False), 0, -1, host_only=False)\n"
        "except OSError as e:\n"
        "    t = access.perf_open_problem(e); print(t.why, '|', t.fix)\n"
    )
    result = python(code)
    if "paranoid" in result.stdout or "refused" in result.stdout:
        pytest.skip(result.stdout)
    assert result.stdout.startswith("not enough file descriptors: the hard limit is 32 | raise it")


# --- calls in threads -----------------------------------------------------------------------------


def test_the_first_error_is_raised_after_all_calls_end() -> None:
    result: list[int] = []

    def one(item: int) -> None:
        if item == 1:
            raise OSError("1 is off")
        result.append(item)

    with pytest.raises(OSError, match="1 is off"):
        run_in_threads(one, range(5))
    assert sorted(result) == [0, 2, 3, 4]


def test_no_work_starts_no_thread() -> None:
    assert run_in_threads(str, []) == []


@pytest.mark.parametrize("given", [0, 1, 3])
def test_all_work_is_done_with_too_few_threads(given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def limited(thread: threading.Thread) -> None:
        if len(started) >= given:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    ran: list[int] = []

    def one(item: int) -> int:
        ran.append(item)
        return -item

    assert run_in_threads(one, range(40)) == [-item for item in range(40)]
    assert sorted(ran) == [*range(40)]
    assert len(started) == given


def test_events_that_were_open_with_guests_are_closed() -> None:
    def refuse_second(event: Event, _cpu: int, host_only: bool) -> int:
        return errno.EOPNOTSUPP if event.key == "cycles" and not host_only else 0

    kernel = fakeperf.Kernel(refuse=refuse_second)
    opened = run(kernel)
    assert opened.host_only
    assert len(kernel.opened) == len(opened.events)
