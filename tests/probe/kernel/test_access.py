"""The capabilities that a probe started by root needs, and keeps while it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trees
from capabilities import cannot_drop, needs_fuse
from command import python, read_some, started_process
from fakekernel.client import FakeKernel
from journals import swept_directory
from roots import TESTS
from waiting import MAX_WAIT_S, wait_for

from perfprobe.cpu import identity
from perfprobe.kernel import access

SYS_PTRACE, SYS_ADMIN, PERFMON, BPF = 19, 21, 38, 39
"""Numbers in linux/capability.h."""


def capabilities_of_threads(process: int | str = "self") -> Iterator[dict[str, str]]:
    """Yields the fields in the status file of each thread of the process."""
    for path in Path(f"/proc/{process}/task").glob("*/status"):
        yield dict(line.split(":\t", 1) for line in path.read_text().splitlines() if ":\t" in line)


pytestmark = pytest.mark.skipif(bool(cannot_drop()), reason=cannot_drop() or "it has them")


def run(code: str, *through: str) -> str:
    """Runs code after dropping capabilities for the source named by the first word. `through` is
    the program that starts it."""
    head = "import os, sys; from pathlib import Path; from perfprobe.kernel import access\n"
    result = python(head + code, *through, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def wait_for_frame(process: subprocess.Popen[bytes]) -> None:
    """Waits for a frame: capabilities are dropped between the hello and the first frame."""
    read_some(process)
    read_some(process)


def has_only_capabilities(status: dict[str, str], *allowed_capabilities: int) -> bool:
    sets = [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")]
    mask = sum(1 << each for each in allowed_capabilities)
    return status["NoNewPrivs"] == "1" and not any(each & ~mask for each in sets)


@pytest.mark.parametrize("source", ["auto", "os", "sim:idle"])
def test_a_running_probe_keeps_only_the_capabilities_it_needs(source: str) -> None:
    kept = set(access.needed_capabilities(Path("/"), source))
    assert kept <= {
        "auto": {PERFMON, access.CAP_SYS_RAWIO, SYS_ADMIN, BPF},
        "os": {BPF, SYS_ADMIN},
    }.get(source, {BPF, SYS_ADMIN}) | {SYS_PTRACE}
    with started_process("stream", "--source", source, program="perfprobe") as process:
        wait_for_frame(process)
        threads = list(capabilities_of_threads(process.pid))
        assert all(has_only_capabilities(status, *kept) for status in threads)
        lanes = [status for status in threads if status["Name"].startswith("perfprobe/")]
        assert all(has_only_capabilities(status) for status in lanes)
        assert bool(lanes) == (source != "sim:idle")


@needs_fuse
def test_registers_are_reopened_and_restored_with_one_capability(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with swept_directory(root), FakeKernel(root) as fake:
        command = ("stream", "--source", "msr", "--sysroot", str(root), "--sample", "0.05")
        with started_process(*command, program="perfprobe") as process:
            wait_for_frame(process)
            kept = set(access.needed_capabilities(root, "msr"))
            threads = capabilities_of_threads(process.pid)
            assert all(has_only_capabilities(status, *kept) for status in threads)
            before = fake.changed()
            for online in (False, True):
                fake.ask("online", cpu=3, online=online)
                written = len(fake.writes())
                while b"hotplug" not in read_some(process):
                    pass
            assert len(fake.writes()) >= written
            assert fake.changed() == before
            assert process.stdin
            process.stdin.close()
            assert process.wait(MAX_WAIT_S) == 0
        assert fake.changed() == {}


@pytest.mark.parametrize("watches_job", [True, False])
def test_where_a_thread_with_all_capabilities_waits_is_known_if_it_is_watched(
    watches_job: bool,
) -> None:
    """Without this, the parent of a vfork seemed to wait for a disk."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            place = Path(f"/proc/{sleeper.pid}/wchan")
            wait_for(lambda: "sleep" in place.read_text(), "it sleeps")
            code = f"""
access.drop_capabilities(Path("/"), "os", watches_job={watches_job})
print(Path("{place}").read_text())
"""
            known = {place.read_text()} if watches_job else {place.read_text(), "0"}
            assert run(code).strip() in known
        finally:
            sleeper.kill()


def test_sources_with_events_can_reopen_them() -> None:
    opened = """
access.drop_capabilities(Path("/"), {source!r})
from perfprobe.perf.perf_events import Event, Kernel
try:
    Kernel().open(Event("clock", 1, 0, is_core=False), 0, -1, host_only=False)
except OSError as error:
    print(error.errno)
else:
    print("open")
"""
    assert run(opened.format(source="auto")) == "open\n"
    if access.perf_problem(Path("/")) is None and _paranoid() > 0:
        assert run(opened.format(source="os")) in {"1\n", "13\n"}


def _paranoid() -> int:
    return int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())


@pytest.mark.usefixtures("_may_trace")
def test_the_idle_program_is_notified_of_an_offline_cpu() -> None:
    code = f"""
sys.path.append({str(TESTS / "support")!r})
from traced import busy_ns
from perfprobe.machine.idle import IdleTrace
trace = IdleTrace(dict([(0, (0, 0))]))
access.drop_capabilities(Path("/"), "os")
trace.mark_offline(0); trace.learn_states([0]); print(busy_ns(trace, 0) is not None)
"""
    assert run(code) == "True\n"


def test_executed_programs_have_no_more_rights() -> None:
    code = """
access.drop_capabilities(Path("/"), "os")
sys.stdout.flush(); os.execvp("grep", ["grep", "CapEff", "/proc/self/status"])
"""
    kept = sum(1 << number for number in access.needed_capabilities(Path("/"), "os"))
    assert int(run(code).split()[1], 16) & ~kept == 0


def test_no_capability_is_inheritable() -> None:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("needs setpriv")
    code = """
access.drop_capabilities(Path("/"), "os")
print(Path("/proc/thread-self/status").read_text())
"""
    result = run(code, setpriv, "--inh-caps=+sys_rawio")
    assert "CapInh:\t0000000000000000\n" in result


def test_nothing_is_imported_after_the_drop() -> None:
    """Later modules may be in a directory that root cannot read then."""
    code = """
from perfprobe.kernel import task_files
loaded = {*sys.modules}
access.drop_capabilities(Path("/"), "os")
details = task_files.process_details(os.getpid()).keys()
print(*sorted(details - {"priority"}), {*sys.modules} - loaded)
"""
    assert run(code) == "affinity command threads user set()\n"


@pytest.mark.parametrize(
    ("release", "needed"), [("5.18.9", True), ("5.19.0-1", False), ("6.1", False), ("", True)]
)
def test_older_kernels_need_a_capability_to_run_programs(
    monkeypatch: pytest.MonkeyPatch, release: str, needed: bool
) -> None:
    monkeypatch.setattr(identity, "kernel_release", lambda: release)
    assert (BPF in access.needed_capabilities(Path("/"), "os")) == needed


@pytest.mark.parametrize(("option", "needed"), [("hidepid=ptraceable", True), ("gid=5", False)])
def test_reading_hidden_processes_needs_a_capability(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str, needed: bool
) -> None:
    trees.put(tmp_path, "proc/self/mountinfo", f"1 0 0:5 / /proc rw - proc proc rw,{option}\n")
    monkeypatch.setattr(access, "_REAL_ROOT", tmp_path)
    assert (SYS_PTRACE in access.needed_capabilities(Path("/"), "os")) == needed


@pytest.mark.parametrize(
    ("level", "last", "needed"),
    [("2", PERFMON, False), ("3", BPF, True), ("-1", PERFMON - 1, True)],
    ids=["mainline", "Debian's level", "before Linux 5.8"],
)
def test_events_need_more_where_their_own_capability_is_not_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, level: str, last: int, needed: bool
) -> None:
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", f"{level}\n")
    trees.put(tmp_path, "proc/sys/kernel/cap_last_cap", f"{last}\n")
    monkeypatch.setattr(access, "_REAL_ROOT", tmp_path)
    monkeypatch.setattr(identity, "kernel_release", lambda: "6.1")
    kept = set(access.needed_capabilities(tmp_path, "perf"))
    assert PERFMON in kept
    assert (SYS_ADMIN in kept) == needed
    assert access.CAP_SYS_RAWIO not in kept


@pytest.mark.parametrize(("source", "user", "expected"), [
    ("auto", 0, {PERFMON, access.CAP_SYS_RAWIO}), ("perf", 0, {PERFMON, access.CAP_SYS_RAWIO}),
    ("msr", 0, {access.CAP_SYS_RAWIO}), ("os", 0, set()), ("sim:idle", 0, set()),
    ("os", 1000, {access.CAP_DAC_OVERRIDE, access.CAP_DAC_READ_SEARCH}),
])  # fmt: skip
def test_registers_and_files_of_root_need_capabilities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, user: int, expected: set[int]
) -> None:
    trees.put(tmp_path, "dev/cpu/0/msr", "")
    trees.put(tmp_path, "proc/sys/kernel/cap_last_cap", "40\n")
    monkeypatch.setattr(access, "_REAL_ROOT", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(identity, "kernel_release", lambda: "6.1")
    assert set(access.needed_capabilities(tmp_path, source)) == expected
    watched = set(access.needed_capabilities(tmp_path, source, watches_job=True))
    assert watched == expected | {SYS_PTRACE}
