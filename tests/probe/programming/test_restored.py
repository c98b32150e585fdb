"""Registers are always restored before perftop ends; if they cannot be, it ends with status 1 and
prints the command that fixes them."""

from __future__ import annotations

import os
import pty
import random
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from capabilities import needs_fuse
from command import argv, children, lines, read_some, run_in_process, started_process
from fakekernel.client import FakeKernel
from journals import entries_left, swept_directory
from nightly import cases_by_day
from waiting import MAX_WAIT_S, wait_for

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
pytestmark = needs_fuse

CPUS = 8
SLOW_S = 0.06
"""Duration of a write: restoring the programmed registers takes more than two seconds."""


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeKernel]:
    with (
        swept_directory(tmp_path / "root"),
        FakeKernel(tmp_path / "root", cores=CPUS // 2) as kernel,
    ):
        yield kernel


def stat(kernel: FakeKernel, *more: str) -> tuple[str, ...]:
    return ("stat", "--json", "-i", "100ms", "--source", "msr", *sysroot_options(kernel), *more)


def sysroot_options(kernel: FakeKernel) -> tuple[str, str]:
    return "--sysroot", str(kernel.root)


def run_printed_command(text: str) -> None:
    """Runs the command that the line contains."""
    (line,) = [line for line in text.splitlines() if "to restore" in line]
    command = shlex.split(line.partition("to restore")[2].partition(":")[2].rpartition(";")[2])
    assert command[0] == "perftop"
    assert run_in_process(*command[1:]).returncode == 0


# --- ended by a signal ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", cases_by_day(SIGNALS, [signal.SIGTERM]))
def test_a_signal_ends_stat_with_its_summary_and_registers_restored(
    fake: FakeKernel, number: signal.Signals
) -> None:
    with started_process(*stat(fake)) as process:
        assert process.stdout
        message = read_some(process)
        while b'"interval"' not in message:
            message += read_some(process)
        assert set(fake.changed()) == set(range(CPUS))
        process.send_signal(number)
        while more := process.stdout.read(1 << 16):
            message += more
        assert process.wait(MAX_WAIT_S) == 128 + number
        assert fake.changed() == {}
    assert lines(message.decode(), "summary")
    assert entries_left(fake.root) == []


@pytest.mark.parametrize("verb", cases_by_day(["stat", "record"], ["record"]))
def test_slow_registers_are_restored_before_the_end(
    fake: FakeKernel, tmp_path: Path, verb: str
) -> None:
    more = ("-o", str(tmp_path / "file")) if verb == "record" else ("-i", "100ms")
    with started_process(verb, *more, "--source", "msr", *sysroot_options(fake)) as process:
        wait_for(lambda: len(fake.changed()) == CPUS, "all CPUs are programmed")
        fake.ask("options", write_s=SLOW_S)
        process.terminate()
        process.wait(MAX_WAIT_S)
        fake.ask("options", write_s=0)
        assert fake.changed() == {}
    assert entries_left(fake.root) == []


@pytest.mark.parametrize("number", cases_by_day([signal.SIGTERM, signal.SIGHUP], [signal.SIGHUP]))
def test_a_signal_ends_the_app_before_it_is_painted(
    fake: FakeKernel, number: signal.Signals
) -> None:
    ours, theirs = pty.openpty()
    command = argv("--source", "msr", *sysroot_options(fake))
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL) as app:
        wait_for(fake.changed, "counters are programmed")
        app.send_signal(number)
        while app.poll() is None:
            os.read(ours, 1 << 16) if is_readable(ours) else None
        assert app.returncode == 128 + number
        assert fake.changed() == {}
    os.close(ours)
    os.close(theirs)


def is_readable(fd: int) -> bool:
    import select

    return bool(select.select([fd], [], [], 0.01)[0])


SELFTEST = """
import sys
from pathlib import Path
from perfprobe import __main__ as probe
from perfprobe.programming.source import open_msr
probe.opening.open_source = lambda options: open_msr(Path({root!r}), 20_000_000, None)
sys.exit(probe.main())
"""
SELFTEST_PROBE = """
import sys
from perftop import __main__ as program
from perftop.process import launch
launch.probe_command = lambda *words, **_: [sys.executable, "-c", {selftest!r}, *words]
sys.argv[1:] = ["selftest", "--source", "msr"]
sys.exit(program.main())
"""


@pytest.mark.parametrize("number", cases_by_day([*SIGNALS, signal.SIGKILL], [signal.SIGKILL]))
def test_a_signal_ends_selftest(fake: FakeKernel, tmp_path: Path, number: signal.Signals) -> None:
    """`selftest` refuses --sysroot, so its source is replaced."""
    code = SELFTEST_PROBE.format(selftest=SELFTEST.format(root=str(fake.root)))
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        env=environment,
    ) as process:  # fmt: skip
        wait_for(lambda: len(fake.changed()) == CPUS, "all CPUs are programmed")
        process.send_signal(number)
        status = process.wait(MAX_WAIT_S)
        if number == signal.SIGKILL:  # the probe detects that its parent ended
            wait_for(lambda: not fake.changed(), "the probe gives all back")
        else:
            assert status == 128 + number
        assert fake.changed() == {}


# --- registers that cannot be restored ------------------------------------------------------------


def test_cpus_offline_at_the_end_are_reported(fake: FakeKernel) -> None:
    with started_process(*stat(fake), with_stderr=True) as process:
        read_some(process)
        for cpu in (3, 5):
            fake.ask("online", cpu=cpu, online=False)
        process.terminate()
        _, errors = process.communicate(timeout=MAX_WAIT_S)
        assert process.returncode == 1
    assert set(fake.changed()) == {3, 5}
    (message,) = errors.decode().splitlines()
    assert message.startswith("perftop: counters of CPUs 3,5 stay programmed: ")
    assert f"tee {fake.root}/sys/devices/system/cpu/cpu{{3,5}}/online" in message
    for cpu in (3, 5):
        fake.ask("online", cpu=cpu, online=True)
    run_printed_command(message)
    assert fake.changed() == {}


def test_a_command_keeps_its_status_with_unrestored_registers(fake: FakeKernel) -> None:
    command = ("sh", "-c", "read line; exit 7")
    with started_process(*stat(fake, "--", *command), with_stderr=True) as process:
        assert process.stdin
        wait_for(lambda: len(fake.changed()) == CPUS, "all CPUs are programmed")
        fake.ask("online", cpu=3, online=False)
        process.stdin.write(b"\n")
        _, errors = process.communicate(timeout=MAX_WAIT_S)
        assert process.returncode == 7
    assert "counters of CPU 3 stay programmed" in errors.decode()


@pytest.mark.parametrize("moment", cases_by_day(["running", "giving back"], ["giving back"]))
def test_a_killed_probe_is_reported_with_its_unrestored_registers(
    fake: FakeKernel, moment: str
) -> None:
    with started_process(*stat(fake), with_stderr=True) as process:
        read_some(process)
        (probe,) = children(process.pid)
        if moment == "giving back":
            fake.ask("options", write_s=SLOW_S)
            process.terminate()
            wait_for(lambda: len(fake.changed()) < CPUS, "the first CPU is given back")
        os.kill(probe, signal.SIGKILL)
        _, errors = process.communicate(timeout=MAX_WAIT_S)
        assert process.returncode == 1
    fake.ask("options", write_s=0)
    assert fake.changed()
    assert "ended by signal 9" in errors.decode()
    run_printed_command(errors.decode())
    assert fake.changed() == {}


@pytest.mark.nightly
@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="of root's run directory")
def test_a_journal_of_an_ended_session_is_found(
    fake: FakeKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with started_process(
        "stream", "--source", "msr", *sysroot_options(fake), program="perfprobe"
    ) as probe:
        read_some(probe)
        probe.kill()
    assert set(fake.changed()) == set(range(CPUS))
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    result = run_in_process(*stat(fake, "-n", "1"))
    assert result.returncode == 0
    assert "restored the counter registers" in result.stderr
    assert fake.changed() == {}


# --- ended at any time ----------------------------------------------------------------------------

TIMES = [
    pytest.param(2, 16, id="by day"),
    *(pytest.param(30, n, id=f"by night, {n}", marks=pytest.mark.nightly) for n in range(8)),
]
"""Number of runs, and the seed of their end times. Each case has its own time limit."""
WITHIN_S = 1.0
"""Latest time of a signal, in s after the start or the first write. This includes imports,
programming, frames and the end."""


@pytest.mark.parametrize(("times", "seed"), TIMES)
def test_registers_are_restored_whenever_the_probe_ends(
    fake: FakeKernel, times: int, seed: int
) -> None:
    """Registers are restored after a signal, and after kill -9 of perftop, which the probe
    survives; kill -9 of the probe is reported."""
    # Tests run in the background or by nohup ignore some signals, which children inherit.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    chance = random.Random(seed)
    for _ in range(times):
        victim = chance.choice(["perftop", "perftop", "killed", "probe"])
        number = chance.choice(SIGNALS)
        with started_process(*stat(fake), with_stderr=True) as process:
            assert process.stdout
            out = process.stdout
            os.set_blocking(out.fileno(), False)  # the pipe has enough room for the output
            if chance.random() < 0.7:
                wait_for(fake.changed, "the first write")
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.0, WITHIN_S))
            if victim == "probe":
                for probe in children(process.pid):
                    os.kill(probe, signal.SIGKILL)
                process.send_signal(number)
            elif victim == "killed":
                process.send_signal(signal.SIGSTOP)  # it starts no probe from here on
                probes = [os.pidfd_open(probe) for probe in children(process.pid)]
                process.kill()
            else:
                process.send_signal(number)
            os.set_blocking(out.fileno(), True)
            _, errors = process.communicate(timeout=MAX_WAIT_S)
        text = errors.decode()
        if victim == "killed":  # its probe may not have programmed anything yet
            for probe in probes:
                select.select([probe], [], [], MAX_WAIT_S)
                os.close(probe)
        elif fake.changed():
            assert victim == "probe"
            assert process.returncode == 1, text
            assert re.search("killed|signal 9", text)
            run_printed_command(text)
        assert fake.changed() == {}, (victim, number, text)
        assert entries_left(fake.root) == []
