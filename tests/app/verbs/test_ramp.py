"""`perftop ramp`: with the real probe, and with one whose answers are given."""

from __future__ import annotations

import argparse
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import chains
import command
import json_page
import pytest

from perftop import cli
from perftop.base.errors import Failed
from perftop.verbs import ramp as verb

CLOCK = [(300e-6, 1.2e9), (4e-3, 2.4e9), (1.0, 3.0e9)]
SLOW = [(0.05, 1.2e9), (1.0, 3.0e9)]


class Probe:
    """Three CPUs: a quick one, one that may not be used, a slow one; the fourth is off."""

    def __init__(self, *lacking: str) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.lacking = lacking or ("1",)

    def __call__(self, verb: str, *more: str) -> dict[str, Any]:
        self.asked.append((verb, *more))
        if verb == "topology":
            return {"cpus": [{"cpu": n, "online": n < 3} for n in range(4)]}
        cpu = more[more.index("--cpu") + 1] if "--cpu" in more else "2"
        if cpu in self.lacking:
            raise Failed(f"--cpu {cpu}: not allowed", 3)
        return chains.answer(*[chains.run(SLOW if cpu == "2" else CLOCK)] * 5, cpu=int(cpu))


def options(**changes: Any) -> argparse.Namespace:
    given = vars(cli._parsed(["ramp"]))
    return argparse.Namespace(**given | changes)


def test_all_cpus_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    probe = Probe()
    assert verb.measure(options(cpu="all", seconds=1.5), probe) == 0
    more = ("--isa", "scalar", "--seconds", "1.5")
    assert probe.asked == [("topology",), *(("ramp", "--cpu", n, *more) for n in "012")]
    text = capsys.readouterr().out
    rows = text.splitlines()[:4]
    assert [row.split()[0] for row in rows] == ["CPU", "0", "1", "2"]
    assert rows[2].endswith("--cpu 1: not allowed")
    assert "CPU 2 · scalar" in text  # the slowest is drawn
    assert "Warm up CPU 2 for 5" in text
    assert "CPU 0 ·" not in text


def test_ctrl_c_prints_the_results_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    probe = Probe()

    def ask(verb: str, *more: str) -> dict[str, Any]:
        if "2" in more:
            raise KeyboardInterrupt
        return probe(verb, *more)

    assert verb.measure(options(cpu="all"), ask) == 130
    assert "Warm up CPU 0 for 4" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        verb.measure(options(cpu="2"), ask)


def test_no_cpu_can_be_measured() -> None:
    with pytest.raises(Failed) as raised:
        verb.measure(options(cpu="all"), Probe("0", "1", "2"))
    assert raised.value.status == 3


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb.measure(options(json=True), Probe()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["steady_hz"] == pytest.approx(3e9, rel=1e-3)
    assert printed["steady_s"]["high"] == pytest.approx(0.05, rel=0.03)
    assert printed["sentence"].startswith("Warm up CPU 2 for 5")
    assert (printed["clock"], printed["unit"], len(printed["climbs"])) == ("probe clock", "Hz", 5)
    assert printed["cycles_why"] == "no PMU here"
    points = printed["climbs"][0]["points"]
    assert points[0] == [0.0, pytest.approx(1.2e9, rel=0.01)]
    assert points[-1][1] == pytest.approx(3e9, rel=0.01)
    assert verb.measure(options(cpu="all", json=True), Probe()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [each["cpu"] for each in printed["cpus"]] == [0, 2]
    assert printed["failed"] == {"1": "--cpu 1: not allowed"}


def test_any_name_of_a_machine_in_ascii(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "utf8", lambda: False)
    probe = Probe()
    assert verb.measure(options(), lambda *asked: probe(*asked) | {"host": "büro"}) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    assert text.startswith("b?ro, ")


def test_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ramp.svg"
    assert verb.measure(options(output=path), Probe()) == 0
    assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314 - our own
    assert "Warm up" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "status", "text"), [
    ("ramp.png", 2, "ends in .svg"), ("no/such/ramp.svg", 1, "cannot write"),
])  # fmt: skip
def test_an_unwritable_picture_is_refused_before_the_measurement(
    tmp_path: Path, name: str, status: int, text: str
) -> None:
    probe = Probe()
    with pytest.raises(Failed, match=text) as raised:
        verb.measure(options(output=tmp_path / name), probe)
    assert raised.value.status == status
    assert probe.asked == []


def test_on_this_machine() -> None:
    done = command.here("ramp", "--seconds", "1")
    if done.returncode == 3:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert ("probe clock" in done.stdout) is ("no counter" in done.stdout)
    assert ("probe clock" in done.stdout) is not ("busy clock" in done.stdout)
    assert "Warm up CPU" in done.stdout or "No answer" in done.stdout
    printed = json.loads(command.here("ramp", "--seconds", "1", "--json").stdout)
    assert printed["steady_hz"] is None or 1e8 < printed["steady_hz"] < 1e10
    assert all(climb["points"] for climb in printed["climbs"])
    assert (printed["clock"] == "probe clock") is (printed["cycles_why"] is not None)
    assert not list(json_page.object_faults(printed, "ramp", "ramp"))


@pytest.mark.parametrize(("arguments", "status", "text"), [
    (["--seconds", "100"], 2, "--seconds 100: from 1 to 60"),
    (["--cpu", "x"], 2, "--cpu x: name one CPU by its number, or all"),
])  # fmt: skip
def test_impossible_requests_get_one_line(arguments: list[str], status: int, text: str) -> None:
    done = command.here("ramp", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"perftop: {text}")
