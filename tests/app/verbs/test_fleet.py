"""`perftop fleet` without a screen: hosts, files of hosts, lines of machines, and recordings."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import command
import fake_ssh
import numpy as np
import pytest
from fakes import CpuLoad
from fakes import Machine as FakeMachine
from waiting import MAX_WAIT_S, until_true

from perfprobe import wire
from perftop import cli
from perftop.base.errors import DAMAGED, USAGE, Failed
from perftop.process import launch, streams
from perftop.process import link as retry
from perftop.session.fleet import Fleet
from perftop.session.fleet_machine import UNKNOWN_NUMBERS, Machine, MachineEpisode
from perftop.session.packing import Recorder
from perftop.verbs import fleet_sources, screens
from perftop.verbs.fleet_sources import RecordingsSource, SshSource
from perftop.verbs.screens import host_names


def test_a_file_lists_one_host_per_line(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# rack 7\nn1\n  admin@n2   # new\n\n")
    assert host_names(["n0"], file) == ["n0", "n1", "admin@n2"]
    with pytest.raises(Failed, match="no machine"):
        host_names([], None)
    with pytest.raises(Failed, match="No such file"):
        host_names([], tmp_path / "none")
    file.write_text(f"n1 # {'x' * screens.MAX_FILE_BYTES}")
    with pytest.raises(Failed, match="larger than 1 MB"):
        host_names([], file)


def test_more_than_64_hosts_are_refused() -> None:
    assert len(SshSource([f"n{i}" for i in range(64)] * 2).fleet.machines) == 64
    with pytest.raises(Failed, match="at most 64"):
        SshSource([f"n{i}" for i in range(65)])
    SshSource(["n1"] * 65)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prometheus", "http://x", "n1"], "leave out hosts"),
        (["--match", "{}", "n1"], "--match needs --prometheus"),
        (["-i", "2s", "."], "-i is for live machines: . has recordings"),
        (["--remote", "/opt/perftop", "."], "--remote is for live machines: . has recordings"),
        ([], "no machine was named"),
        (["./none"], "no machine or directory ./none; "),
        (["./", "./"], "fleet reads only one directory"),
        ([""], "a name is empty"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["fleet", "--json", *options]) == USAGE
    assert message in capsys.readouterr().err


def test_a_fleet_shows_a_limited_number_of_recordings(
    night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_sources, "MAX_FILES", 2)
    source = RecordingsSource(night)
    source._open.close()
    assert len(source.fleet.machines) == 2
    monkeypatch.setattr(fleet_sources, "MAX_FILES", 1)
    with pytest.raises(Failed, match="2 recordings; at most 1"):
        RecordingsSource(night)


def test_a_host_name_that_looks_like_an_option_is_refused() -> None:
    with pytest.raises(Failed):
        SshSource(["-oProxyCommand=x"])


def test_all_machines_have_a_line_and_silent_ones_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = fake_ssh.install(tmp_path, monkeypatch)
    hosts.set("n1", "run sim:steady,cpus=4")
    hosts.set("n2", "refused")
    monkeypatch.setattr(screens, "MAX_FIRST_WAIT_S", MAX_WAIT_S)
    result = command.run_in_process("fleet", "n1", "n2", "--json", "-n", "2", "-i", "100ms")
    assert result.returncode == 1
    assert result.stderr.startswith("perftop: n2 never answered: connection failed: ")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["machine"] for line in lines if line["type"] == "machine"] == ["n2", "n1"] * 2
    silent, answers = lines[0], next(line for line in lines if line["machine"] == "n1")
    assert not silent["answers"]
    assert "refused" in silent["why"]
    assert silent["busy"] is None
    assert answers["answers"]
    assert answers["cpus"] == 4
    assert answers["busy"] == pytest.approx(1.0, abs=0.05)


class SilentSource:
    """A source with one machine, which had an episode."""

    update_s, is_over, shown_time_s, damages = 0.01, False, 10.0, None

    def __init__(self) -> None:
        machine = Machine("n1")
        machine.ended.append(MachineEpisode("n1", "steal", "hypervisor", 1.0, 2.0, 0.5, 1.0))
        self.fleet = Fleet([machine])
        machine.why = "gone"

    async def run(self) -> None:
        await asyncio.Future()


def test_an_episode_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(screens._print_lines(SilentSource(), 3)) == 1  # type: ignore[arg-type]
    kinds = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["machine", "episode", "machine", "machine"]


class EndingSource(SilentSource):
    """A source whose machine answers, and is silent from the first line on."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet.machines["n1"].set_numbers(9.0, UNKNOWN_NUMBERS, 0)

    async def run(self) -> None:
        (machine,) = self.fleet.machines.values()
        await asyncio.sleep(5 * self.update_s)
        machine.fall_silent(10.0, "gone")
        await asyncio.Future()


def test_a_machine_that_falls_silent_has_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(screens._print_lines(EndingSource(), 20)) == 0  # type: ignore[arg-type]
    text, errors = capsys.readouterr()
    answers = [line["answers"] for line in map(json.loads, text.splitlines()) if "answers" in line]
    assert (answers[0], answers[-1], errors) == (True, False, "")


def has_failed(machine: Machine) -> bool:
    return machine.why not in {"connecting", ""}


async def test_a_hanging_or_broken_host_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = fake_ssh.install(tmp_path, monkeypatch)
    behaviours = {"hung": "hang", "liar": "garbage", "gone": "noname", "cut": "cut 2000"}
    for name, behaviour in behaviours.items():
        hosts.set(name, behaviour)
    hosts.set("good", "run sim:steady,cpus=2")
    monkeypatch.setattr(fleet_sources, "MAX_STARTING", 1)
    monkeypatch.setattr(fleet_sources, "MAX_START_S", 0.5)
    starts_s, start_probe = list[float](), launch.start_probe

    def timed_start(argv: list[str]) -> launch.AnyProbe:
        starts_s.append(time.monotonic())
        return start_probe(argv)

    monkeypatch.setattr(launch, "start_probe", timed_start)
    source = SshSource([*behaviours, "good"], 0.1)
    task = asyncio.create_task(source.run())
    machines = source.fleet.machines
    await until_true(lambda: machines["good"].is_answering, "values of the working host")
    assert starts_s[1] - starts_s[0] > 0.4, "the start of the host that hangs"
    for name in ("liar", "gone", "cut"):
        await until_true(partial(has_failed, machines[name]), f"the reason of {name}")
    assert machines["hung"].why == "connecting"
    assert "resolve" in machines["gone"].why
    # the grace period for the ssh of the host that hangs
    monkeypatch.setattr(launch, "GRACE_S", 0.1)
    task.cancel()
    await asyncio.wait([task])


def test_the_screen_of_a_machine_is_opened_with_the_options_of_the_fleet() -> None:
    for remote, more in ((None, ()), ("/opt/perfprobe", ("--remote", "/opt/perfprobe"))):
        machines = SshSource(["n1", "sim:idle"], remote=remote).fleet.machines
        assert machines["n1"].open_arguments == ("live", "--host", "n1", *more)
        assert machines["sim:idle"].open_arguments == ("live", "--source", "sim:idle")


def test_the_cost_of_a_fleet_is_its_mean_share_and_received_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = SshSource(["n1", "n2", "n3"])
    for machine, share in zip(source.fleet.machines.values(), (0.01, 0.02, math.nan), strict=True):
        machine.is_answering, machine.probe_share, machine.frames_lost = True, share, 2
    monkeypatch.setattr(source._receive_rate, "per_s", lambda: 12_600.0)
    assert source.cost_texts() == ["1.50 % there", "13 kB/s", "dropped frames 6"]


async def test_a_broken_link_is_reported_immediately_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "RETRY_WAITS_S", (0.2,))
    hosts = fake_ssh.install(tmp_path, monkeypatch)
    hosts.set("n1", "run sim:steady,cpus=2")

    source = SshSource(["n1"], 0.1)
    assert source.cost_texts() == ["dropped frames 0"], "no rate in the first second"
    task = asyncio.create_task(source.run())
    machine = source.fleet.machines["n1"]
    await until_true(lambda: machine.is_answering, "values of n1")
    machine.probe_share = 0.0123
    assert source.cost_texts()[0] == "1.23 % there"
    hosts.set("n1", "refused")
    hosts.disconnect("n1")
    await until_true(lambda: "refused" in machine.why, "the reason of the broken link")
    assert machine.history.times
    hosts.set("n1", "run sim:steady,cpus=2")
    await until_true(lambda: machine.is_answering, "values after the link is restored")
    await until_true(lambda: "kB/s" in " ".join(source.cost_texts()), "the rate")
    task.cancel()
    await asyncio.wait([task])


async def test_a_machine_that_has_answered_is_retried_after_the_shortest_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "RETRY_WAITS_S", (0.01, 1000.0))
    hosts = fake_ssh.install(tmp_path, monkeypatch)
    hosts.set("n1", "run sim:steady,cpus=2")
    source = SshSource(["n1"], 0.1)
    task = asyncio.create_task(source.run())
    machine = source.fleet.machines["n1"]
    for _ in range(3):
        await until_true(lambda: machine.is_answering, "values of n1")
        hosts.disconnect("n1")
        await until_true(lambda: not machine.is_answering, "the broken link")
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("name", ["n1", "sim:steady,cpus=2"])
async def test_a_pause_of_perftop_is_not_a_silence_of_the_machine(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-Z: nothing is read for longer than a machine may be silent."""
    monkeypatch.setattr(streams, "MAX_SILENCE_S", 1.0)
    fake_ssh.install(tmp_path, monkeypatch).set("n1", "run sim:steady,cpus=2")
    source = SshSource([name], 0.1)
    task = asyncio.create_task(source.run())
    machine, reasons = source.fleet.machines[name], list[str]()
    monkeypatch.setattr(Machine, "fall_silent", lambda *arguments: reasons.append(arguments[2]))
    await until_true(lambda: machine.is_answering, "values of the machine")
    time.sleep(1.6)  # noqa: ASYNC251 - stops the event loop
    resumed_s = time.time()
    await until_true(lambda: machine.updated_at > resumed_s + 0.5, "values after the pause")
    assert reasons == []
    task.cancel()
    await asyncio.wait([task])


async def test_silence_and_impossible_messages_are_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_sources, "MAX_STARTING", 1)
    monkeypatch.setattr(fleet_sources, "MAX_START_S", 1000.0)  # the next one starts at an answer
    monkeypatch.setattr(streams, "MAX_SILENCE_S", 0.5)
    monkeypatch.setattr(launch, "GRACE_S", 0.1)
    hosts, names = fake_ssh.install(tmp_path, monkeypatch), ["stopped", "liar", "sim:idle,cpus=2"]
    for name in names[:2]:
        hosts.set(name, "run sim:steady,cpus=2")
    source = SshSource(names, 0.1)
    simulated_pids, start_probe = list[int](), launch.start_probe

    def noted_start(argv: list[str]) -> launch.AnyProbe:
        probe = start_probe(argv)
        if probe.remote_name is None and isinstance(probe, launch.Probe):
            simulated_pids.append(probe.process.pid)
        return probe

    monkeypatch.setattr(launch, "start_probe", noted_start)
    task = asyncio.create_task(source.run())
    machines = source.fleet.machines
    await until_true(lambda: not source.fleet.silent_machines, "values of all machines")
    (liar,) = (live for _, live in source._feeds if live.machine.name == "liar")
    monkeypatch.setattr(liar, "process", Mock(side_effect=wire.WireError("no such CPU")))
    for pid in (hosts.pids("stopped")[-1], simulated_pids[-1]):
        os.kill(pid, signal.SIGSTOP)
    reasons = dict.fromkeys(names, "")

    def note_reasons() -> bool:
        reasons.update({name: machines[name].why or reasons[name] for name in names})
        return all(reasons.values())

    await until_true(note_reasons, "the reasons of all machines")
    assert reasons["liar"] == "it sent impossible data: no such CPU"
    assert re.search("stopped: received no sample for", reasons["stopped"])
    assert re.search("sent nothing for .*was it stopped", reasons["sim:idle,cpus=2"])
    task.cancel()
    await asyncio.wait([task])


# --- recordings of several machines


START = 1_700_000_000


def write_recording(directory: Path, name: str, util: float, begins_s: int, seconds: int) -> None:
    """A recording of ten samples a second that starts `begins_s` after START."""
    machine = FakeMachine(cores=2, loads={cpu: CpuLoad(util=util) for cpu in range(4)})
    hello = dataclasses.replace(machine.hello, wall_ns=(START + begins_s) * 10**9, raw_ns=0)
    with (directory / f"{name}.perftop").open("wb") as file:
        recorder = Recorder(file.write, hello)
        for seq in range(1, 10 * seconds + 1):
            recorder.write([machine.frame(seq)])
        recorder.end()


@pytest.fixture
def night(tmp_path: Path) -> Path:
    write_recording(tmp_path, "n1", 0.75, 0, 40)
    write_recording(tmp_path, "n2", 0.25, 20, 40)
    return tmp_path


@asynccontextmanager
async def playing_source(night: Path, *, playing: bool = False) -> AsyncIterator[RecordingsSource]:
    source = RecordingsSource(night, playing=playing)
    task = asyncio.create_task(source.run())
    try:
        await until_true(lambda: source.shown_time_s >= source.first + 1, "the first second")
        yield source
    finally:
        task.cancel()
        await asyncio.wait([task])


async def time_after(source: RecordingsSource, step: int) -> float:
    """Steps through time; returns the new time in seconds after START."""
    at = source.shown_time_s
    source.move_in_time(step)
    await until_true(lambda: abs(source.shown_time_s - at - step) < 0.01, f"{step} s on")
    return source.shown_time_s - START


async def test_times_are_reached_forwards_and_backwards(night: Path) -> None:
    async with playing_source(night) as source:
        machines = source.fleet.machines
        assert machines["n1"].is_answering
        assert "begins at" in machines["n2"].why
        await time_after(source, 30)
        n1, n2 = source.fleet.machines["n1"], source.fleet.machines["n2"]
        assert n1.numbers["busy"] == pytest.approx(0.75, abs=0.02)
        assert n2.numbers["busy"] == pytest.approx(0.25, abs=0.02)
        assert source.shown_time_s - 1.1 <= n1.updated_at <= source.shown_time_s
        await time_after(source, 20)
        assert "ends at" in source.fleet.machines["n1"].why
        assert source.fleet.machines["n2"].is_answering
        await time_after(source, -25)
        assert source.fleet.machines["n1"].is_answering
        assert source.fleet.machines["n1"].open_arguments == ("replay", str(night / "n1.perftop"))


async def test_a_file_name_that_starts_with_a_dash_is_not_opened_as_an_option(
    night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (night / "n1.perftop").rename(night / "--config=n1.perftop")
    monkeypatch.chdir(night)
    async with playing_source(Path()) as source:
        arguments = source.fleet.machines["--config=n1"].open_arguments
    assert arguments == ("replay", str(night / "--config=n1.perftop"))


def test_lines_report_whether_a_machine_responds(night: Path) -> None:
    result = command.run_in_process("fleet", str(night), "--json", "-n", "1")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert {line["machine"]: line["answers"] for line in lines} == {"n1": True, "n2": False}


def test_lines_of_recordings_are_printed_as_fast_as_they_are_read(night: Path) -> None:
    began_s = time.monotonic()
    result = command.run_in_process("fleet", str(night), "--json")
    assert time.monotonic() - began_s < 30, "the recordings cover 60 s"
    lines = map(json.loads, result.stdout.splitlines())
    times = [line["time"] for line in lines if line.get("machine") == "n1" and "time" in line]
    assert np.diff(times)[:-1] == pytest.approx(1.0)
    assert len(times) == 60
    assert (result.returncode, result.stderr) == (0, "")


async def test_damage_to_one_recording_is_reported_and_does_not_affect_others(night: Path) -> None:
    (night / "n0.perftop").touch()
    whole = (night / "n1.perftop").read_bytes()
    (night / "n3.perftop").write_bytes(whole[: len(whole) // 2])
    async with playing_source(night) as source:
        await time_after(source, 30)  # reads the recordings from there on
        machines = source.fleet.machines
        answering_names = {name for name, machine in machines.items() if machine.is_answering}
        assert answering_names == {"n1", "n2"}
        assert "n0.perftop is empty" in machines["n0"].why
        assert re.search(r"ends at .*: truncated at byte", machines["n3"].why)
        assert source.cost_texts()[0] == "2 damaged"


def test_lines_of_a_damaged_recording_end_with_the_status_of_damaged_input(night: Path) -> None:
    intact = command.run_in_process("fleet", str(night), "--json", "-n", "1")
    assert (intact.returncode, intact.stderr) == (0, ""), "n2 begins later, and is not damaged"
    (night / "n0.perftop").touch()
    damaged = command.run_in_process("fleet", str(night), "--json", "-n", "1")
    assert damaged.returncode == DAMAGED
    assert "n0.perftop is empty" in damaged.stderr
    assert len(damaged.stdout.splitlines()) == 3


async def test_time_advances_only_while_recordings_play(
    night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_sources, "STEP_S", 0.01)
    async with playing_source(night) as source:
        paused_at = source.shown_time_s
        await asyncio.sleep(5 * fleet_sources.STEP_S)
        assert source.shown_time_s == paused_at
        assert source.shown_time_text.startswith("paused")
    async with playing_source(night, playing=True) as source:
        started_at = source.shown_time_s
        await until_true(lambda: source.shown_time_s > started_at, "a later time")
        assert source.shown_time_text.startswith("playing")


async def test_recordings_are_played_to_their_end(
    night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_sources, "STEP_S", 0.01)
    async with playing_source(night) as source:
        assert not source.is_over
        source.move_in_time(1000)
        await until_true(lambda: source.is_over, "the end")
        assert source.shown_time_s == source.last == START + 60
        source.toggle_pause()
        assert source.shown_time_text.startswith("playing")
        await until_true(lambda: source.shown_time_text.startswith("paused"), "its end")


def test_directories_without_recordings_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no recordings"):
        RecordingsSource(tmp_path)
    (tmp_path / "x.perftop").write_bytes(b"no")
    with pytest.raises(Failed):
        RecordingsSource(tmp_path)
