"""`perftop fleet` without a screen: hosts, their files, and a line a machine."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import command
import fake_ssh
import pytest
from waiting import until

from perftop.base.errors import Failed
from perftop.process import link as retry
from perftop.session.fleet.fleet import Fleet
from perftop.session.fleet.machine import Machine, MachineEpisode
from perftop.verbs import fleet
from perftop.verbs.fleet import names
from perftop.verbs.fleet_sources import LiveSource


def test_a_file_names_a_host_a_line(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# rack 7\nn1\n  admin@n2   # new\n\n")
    assert names(["n0"], file) == ["n0", "n1", "admin@n2"]
    with pytest.raises(Failed, match="no machine"):
        names([], None)
    with pytest.raises(Failed, match="No such file"):
        names([], tmp_path / "none")


def test_more_than_64_hosts_are_refused() -> None:
    with pytest.raises(Failed, match="at most 64"):
        LiveSource([f"n{i}" for i in range(65)])
    LiveSource(["n1"] * 65)


def test_a_name_that_ssh_would_misread_is_refused() -> None:
    with pytest.raises(Failed):
        LiveSource(["-oProxyCommand=x"])


def test_each_machine_has_a_line_and_a_silent_one_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = fake_ssh.install(tmp_path, monkeypatch)
    hosts.set("n1", "run sim:steady,cpus=4")
    hosts.set("n2", "refused")
    done = command.here("fleet", "n1", "n2", "--json", "-n", "2", "-i", "100ms")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["machine"] for line in lines if line["type"] == "machine"] == ["n2", "n1"] * 2
    silent, answers = lines[0], next(line for line in lines if line["machine"] == "n1")
    assert not silent["answers"]
    assert "refused" in silent["why"]
    assert silent["busy"] is None
    assert answers["answers"]
    assert answers["cpus"] == 4
    assert answers["busy"] == pytest.approx(1.0, abs=0.05)


class Quiet:
    """A source whose only machine had an episode."""

    every_s, over, now = 0.01, False, 10.0

    def __init__(self) -> None:
        machine = Machine("n1")
        machine.ended.append(MachineEpisode("n1", "steal", "hypervisor", 1.0, 2.0, 0.5, 1.0))
        self.fleet = Fleet([machine])
        machine.why = "gone"

    async def run(self) -> None:
        await asyncio.Future()


def test_an_episode_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(fleet._print_lines(Quiet(), 3)) == 0  # type: ignore[arg-type]
    kinds = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["machine", "episode", "machine", "machine"]


def failed(machine: Machine) -> bool:
    return machine.why not in {"connecting", ""}


async def test_a_hanging_or_broken_host_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = fake_ssh.install(tmp_path, monkeypatch)
    printed = {"hung": "hang", "liar": "garbage", "gone": "noname", "cut": "cut 2000"}
    for name, does in printed.items():
        hosts.set(name, does)
    hosts.set("good", "run sim:steady,cpus=2")

    source = LiveSource([*printed, "good"], 0.1)
    task = asyncio.create_task(source.run())
    machines = source.fleet.machines
    await until(lambda: machines["good"].answers, "the good one answers")
    for name in ("liar", "gone", "cut"):
        await until(partial(failed, machines[name]), f"{name} says why")
    assert machines["hung"].why == "connecting"
    assert "resolve" in machines["gone"].why
    task.cancel()
    await asyncio.wait([task])


def test_without_a_terminal_the_screen_names_json() -> None:
    done = command.here("fleet", "sim:idle")
    assert done.returncode == 2
    assert "--json" in done.stderr


async def test_a_broken_link_is_reported_at_once_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "WAITS_S", (0.2,))
    hosts = fake_ssh.install(tmp_path, monkeypatch)
    hosts.set("n1", "run sim:steady,cpus=2")

    source = LiveSource(["n1"], 0.1)
    task = asyncio.create_task(source.run())
    machine = source.fleet.machines["n1"]
    await until(lambda: machine.answers, "it answers")
    hosts.set("n1", "refused")
    hosts.cut("n1")
    await until(lambda: "refused" in machine.why, "why it is not there any more")
    assert machine.past.times
    hosts.set("n1", "run sim:steady,cpus=2")
    await until(lambda: machine.answers, "it is back")
    assert "kB/s" in " ".join(source.facts())
    task.cancel()
    await asyncio.wait([task])
