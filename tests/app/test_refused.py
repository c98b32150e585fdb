"""If the kernel refuses a system call or lacks resources, one correct message and a documented
status are the result, and a command's own status is kept."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest
import restricted_run
from command import argv
from nightly import cases_by_day
from waiting import MAX_WAIT_S

SIM = "--source", "sim:smt-mix,cpus=2"
COMMAND = "--", "sh", "-c", "exit 7"


def run_with_refused_call(refused_call: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if "=E" in refused_call and (why := restricted_run.unavailable()):
        pytest.skip(why)
    command = [sys.executable, "-ISB", restricted_run.__file__, refused_call, *argv(*arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=MAX_WAIT_S, check=False)


@pytest.mark.parametrize(
    ("call", "verb"),
    cases_by_day(
        [*product(("getrusage", "pidfd_open"), ("stat", "why"))],
        [("pidfd_open", "stat")],
    ),
)
def test_the_status_of_a_command_is_kept_without_optional_system_calls(
    call: str, verb: str
) -> None:
    result = run_with_refused_call(f"{call}=EPERM", verb, *SIM, *COMMAND)
    assert (result.returncode, "Traceback" in result.stderr) == (7, False)


REFUSALS = [
    ("sendto=EPERM", 3, "cannot wait for events: Operation not permitted"),
    ("recvfrom=ENOSYS", 3, "cannot wait for events: Function not implemented"),
    ("socketpair=EPERM", 3, "cannot wait for events: Operation not permitted"),
    ("epoll_ctl=EPERM", 3, "cannot wait for events: Operation not permitted"),
    ("epoll_wait=EPERM", 3, "cannot wait for events: Operation not permitted"),
    ("poll=ENOSYS", 3, "cannot wait for events: Function not implemented"),
    ("rt_sigaction=EPERM", 1, "a system call was refused"),
    ("uname=EPERM", 1, "a system call was refused"),
    ("clone=EPERM", 126, "cannot start sh: Operation not permitted"),
    ("AS=80000000", 3, "the memory limit, 80 MB, is too low"),
    ("DATA=60000000", 3, "the memory limit, 60 MB, is too low"),
    ("NPROC=1", 126, "cannot start sh: Resource temporarily unavailable; see ulimit -u"),
]
BY_DAY = ("sendto=EPERM", "rt_sigaction=EPERM", "clone=EPERM", "AS=80000000", "DATA=60000000")


@pytest.mark.parametrize(
    ("trouble", "status", "message"),
    cases_by_day(REFUSALS, [case for case in REFUSALS if case[0] in BY_DAY]),
)
def test_refused_calls_are_reported_with_one_message(
    trouble: str, status: int, message: str
) -> None:
    result = run_with_refused_call(trouble, "stat", *SIM, *COMMAND)
    assert (result.returncode, result.stderr.count("\n")) == (status, 1), result.stderr
    assert message in result.stderr


def test_a_fleet_reports_refused_threads_with_one_message() -> None:
    result = run_with_refused_call("clone3=EPERM", "fleet", "sim:steady", "--json", "-n", "1")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1), result.stderr
    assert "cannot start a thread" in result.stderr


def test_a_fleet_waits_for_the_ends_of_its_probes_although_sleep_is_refused() -> None:
    trouble = "clock_nanosleep=ENOSYS"
    result = run_with_refused_call(trouble, "fleet", "sim:steady", "--json", "-n", "1")
    assert (result.returncode, result.stderr) == (0, "")
