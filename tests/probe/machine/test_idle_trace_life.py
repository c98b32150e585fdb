"""Starting and ending a trace: rights, errors, and its complete removal from the kernel."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import capabilities
import pytest
from capabilities import SETGID, SETUID
from traced import BUSY, read_values
from waiting import MAX_WAIT_S, wait_for

from perfprobe.cpu import identity
from perfprobe.kernel import access
from perfprobe.machine import idle
from perfprobe.machine.idle import STATES, IdleTrace

pytestmark = pytest.mark.usefixtures("_may_trace")

NOBODY = 65534
BPF = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
PROG_GET_FD_BY_ID = 13

HOLD_PROGRAM = """
import sys, time
from perfprobe.machine.idle import IdleTrace
trace = IdleTrace({0: (0, 0)})
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("core_map", "reason"), [
    ({}, "arguments.*empty or out of range"),
    ({0: (0, 2)}, "out of range"),
    ({0: (0, 0), 1: (0, 0)}, "two CPUs in one place"),
    ({4096: (0, 0)}, "out of range"),
    ({0: (4096, 0)}, "out of range"),
])  # fmt: skip
def test_invalid_core_maps_are_refused(core_map: dict[int, tuple[int, int]], reason: str) -> None:
    with pytest.raises(OSError, match=reason):
        IdleTrace(core_map)


def test_untraced_cpus_and_cores_cannot_be_read() -> None:
    with IdleTrace({0: (0, 0)}) as trace:
        assert read_values(trace, (BUSY, 1), (STATES["lp0_s"], 1)) == [None, None]
        with pytest.raises(FileNotFoundError):
            trace.mark_offline(1)
    trace.close()
    with pytest.raises(ValueError, match="closed"):
        trace.base_address()


def programs(pid: int | str) -> list[int]:
    """Returns the ids of the BPF programs (not of links to them) that a process holds."""
    results = []
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            fields = dict(line.split(":", 1) for line in file.read_text().splitlines())
        except (OSError, ValueError):
            continue
        if "prog_id" in fields and "link_id" not in fields:
            results.append(int(fields["prog_id"]))
    return results


def loaded(program: int) -> bool:
    """Whether the program is in the kernel, whichever process holds it."""
    attributes = ctypes.create_string_buffer(program.to_bytes(4, sys.byteorder), 128)
    fd = ctypes.CDLL(None, use_errno=True).syscall(BPF, PROG_GET_FD_BY_ID, attributes, 128)
    if fd < 0:
        assert ctypes.get_errno() == errno.ENOENT
        return False
    os.close(fd)
    return True


@pytest.mark.skipif(BPF is None, reason="no number of bpf(2) for this machine here")
def test_nothing_remains_after_close() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with IdleTrace({0: (0, 0)}):
        (program,) = programs("self")
        assert loaded(program)
    assert programs("self") == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    wait_for(lambda: not loaded(program), "the program is gone")


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", HOLD_PROGRAM], stdout=subprocess.PIPE) as child:
        yield child
        child.kill()


@pytest.mark.skipif(BPF is None, reason="no number of bpf(2) for this machine here")
def test_nothing_remains_after_a_kill(holder: subprocess.Popen[bytes]) -> None:
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    (program,) = programs(holder.pid)
    assert loaded(program)
    holder.send_signal(signal.SIGKILL)
    holder.wait(MAX_WAIT_S)
    wait_for(lambda: not loaded(program), "the program is gone")


SHOW_PROGRAM = """
from perfprobe.machine.idle import IdleTrace
try:
    with IdleTrace({0: (0, 0)}):
        print("traced")
except OSError as error:
    print(error)
"""


def run_without_rights(*options: str, needs: Sequence[int] = ()) -> str:
    """Returns the output of a process whose rights were dropped by these options of setpriv."""
    command = [capabilities.setpriv(*needs), *options, sys.executable, "-c", SHOW_PROGRAM]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_missing_rights_are_named() -> None:
    text = run_without_rights("--bounding-set=-all", "--inh-caps=-all")
    value = idle.UNPRIVILEGED_BPF_DISABLED.read_text().strip()
    assert "needs CAP_BPF and CAP_PERFMON, or root" in text
    assert f"kernel.unprivileged_bpf_disabled={value})" in text


def test_two_capabilities_are_enough() -> None:
    caps = "+bpf,+perfmon"
    user = f"--reuid={NOBODY}", "--clear-groups"
    needs = (SETUID, SETGID, access.CAP_BPF, access.CAP_PERFMON)
    text = run_without_rights(*user, f"--inh-caps={caps}", f"--ambient-caps={caps}", needs=needs)
    assert text == "traced\n"


@pytest.mark.parametrize(("number", "call", "reason_text"), [
    (errno.EPERM, "BPF_MAP_CREATE", "CAP_BPF and CAP_PERFMON, or root"),
    (errno.ENOSYS, "BPF_MAP_CREATE", "no bpf(2)"),
    (errno.EINVAL, "BPF_MAP_CREATE", "Linux 5.12"),
    (errno.EINVAL, "BPF_PROG_LOAD", "Linux 5.12"),
    (errno.ENOENT, "BPF_RAW_TRACEPOINT_OPEN", "no tracepoint cpu_idle"),
    (errno.ENOMEM, "mmap", os.strerror(errno.ENOMEM)),
])  # fmt: skip
def test_each_error_of_a_system_call_has_its_reason(
    number: int, call: str, reason_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "_is_permitted", lambda: False)
    assert reason_text in idle.problem_text(number, call)


@pytest.mark.parametrize(("number", "root", "permitted", "filtered", "why", "fix"), [
    (errno.EPERM, False, False, False, "or root", "perftop --sudo"),
    (errno.EPERM, True, False, True, "needs CAP_BPF", "give root CAP_BPF and CAP_PERFMON here"),
    (errno.EPERM, True, True, True, "seccomp filter", "allow bpf in its seccomp profile"),
    (errno.EPERM, True, True, False, "security module", "ask its administrator"),
    (errno.ENOSYS, False, False, False, "this kernel has no bpf(2)", None),
    (errno.ENOSYS, True, True, False, "this kernel has no bpf(2)", None),
])  # fmt: skip
def test_the_remedy_depends_on_the_rights_of_the_user(
    number: int, root: bool, permitted: bool, filtered: bool, why: str, fix: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Root is never advised to become root, and no rights are suggested on a kernel without
    bpf(2)."""
    monkeypatch.setattr(idle, "_is_permitted", lambda: permitted)
    monkeypatch.setattr(access, "is_seccomp_filtered", lambda _: filtered)
    monkeypatch.setattr(identity, "is_in_user_namespace", lambda *_: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else NOBODY)
    problem = idle.trace_problem(idle._open_error(number, "BPF_MAP_CREATE\n"))
    assert why in problem.why
    assert (problem.fix is None) == (fix is None)
    assert (fix or "") in (problem.fix or "")


@pytest.mark.parametrize(("capabilities", "namespace", "permitted"), [
    ({access.CAP_BPF, access.CAP_PERFMON}, False, True),
    ({access.CAP_SYS_ADMIN}, False, True),
    ({access.CAP_BPF}, False, False),
    ({access.CAP_PERFMON}, False, False),
    ({access.CAP_BPF, access.CAP_PERFMON}, True, False),
])  # fmt: skip
def test_both_capabilities_outside_a_user_namespace_permit_tracing(
    capabilities: set[int], namespace: bool, permitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    effective = f"{sum(1 << number for number in capabilities):016x}"
    monkeypatch.setattr(access, "own_status", lambda *_: [effective])
    monkeypatch.setattr(identity, "is_in_user_namespace", lambda *_: namespace)
    assert idle._is_permitted() == permitted


def test_the_verifiers_messages_are_a_note() -> None:
    error = idle._open_error(errno.EINVAL, "BPF_PROG_LOAD\n0: (bf) r1 = r9\nR9 !read_ok\n")
    assert error.errno == errno.EINVAL
    assert error.__notes__ == ["0: (bf) r1 = r9\nR9 !read_ok"]
    assert not hasattr(idle._open_error(errno.EPERM, "BPF_MAP_CREATE\n"), "__notes__")
