"""JSON output of all verbs matches the tables of its page: the same keys, with values of the
documented types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chains
import pytest
from json_page import faults, object_faults
from nightly import nightly_case

from perftop import cli
from perftop.verbs import ramp

SIM = "--source=sim:{},cpus=4,speed=max"
RENAMED = {"fleet": {"machine": "fleet_machine", "episode": "fleet_episode"}}
"""Line types by verb, if another verb uses the same type."""


def printed_lines(
    line: list[str], capsys: pytest.CaptureFixture[str], status: int = 0
) -> list[dict[str, Any]]:
    assert cli.main(line) == status
    return [json.loads(splitline) for splitline in capsys.readouterr().out.splitlines()]


def check(verb: str, lines: list[dict[str, Any]]) -> set[str]:
    """Returns the types of the lines; checks each against the page."""
    kinds = set()
    for line in lines:
        kind = line.get("type", verb)
        kinds.add(kind)
        name = RENAMED.get(verb, {}).get(kind, kind)
        result = list(object_faults(line, name, kind))
        assert not result, result[:8]
    return kinds


@pytest.mark.parametrize("scenario", [nightly_case("turbo-drop"), "neighbour", "guest"])
def test_lines_of_stat_match_the_page(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["stat", "--json", SIM.format(scenario).replace("guest,cpus=4", "guest")]
    line += ["-e", "branch-misses,context-switches"] if scenario == "turbo-drop" else []
    kinds = check("stat", printed_lines([*line, "-n", "13"], capsys))
    assert kinds >= {"hello", "interval", "summary"}
    assert scenario == "guest" or "episode" in kinds


def test_lines_about_a_command_match_the_page(capfd: pytest.CaptureFixture[str]) -> None:
    line = ["stat", "--json", "-o", "-", SIM.format("steady").replace("max", "9")]
    assert {"hello", "summary"} <= check("stat", printed_lines([*line, "--", "true"], capfd))
    assert check("stat", printed_lines([*line, "-r", "3", "--", "true"], capfd)) == {
        "hello", "run", "runs",
    }  # fmt: skip


def test_lines_of_why_match_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed_lines(["why", "--json", SIM.format("neighbour"), "--watch", "lmp"], capsys)
    assert lines[0]["causes"]
    assert check("why", lines) == {"why"}


def test_lines_about_recordings_match_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    for path, scenario in zip(paths, ("turbo-drop", "steady"), strict=True):
        assert cli.main(["record", SIM.format(scenario), "--duration", "10s", "-o", path]) == 0
    capsys.readouterr()
    assert check("summary", printed_lines(["summary", "--json", paths[0]], capsys)) == {"phase"}
    assert check("diff", printed_lines(["diff", "--json", *paths], capsys)) == {"diff"}
    kinds = check("export", printed_lines(["export", "--format", "jsonl", paths[0]], capsys))
    assert kinds == {"hello", "interval", "episode-start", "episode", "summary"}


def test_lines_of_fleet_match_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fleet", "--json", "-n", "1", "sim:throttle,cpus=4,speed=9", "sim:nothing"]
    lines = printed_lines(words, capsys, status=1)
    assert {line["answers"] for line in lines if line["type"] == "machine"} == {True, False}
    assert check("fleet", lines) >= {"machine"}  # a busy machine may have episodes, too


@pytest.mark.parametrize("verb", ["topology", "doctor", "events"])
def test_lines_about_this_machine_match_the_page(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(verb, printed_lines([verb, "--json"], capsys)) == {verb}


def test_the_check_of_conditions_matches_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--check", "--json"]) in {0, 1}
    (line,) = (json.loads(splitline) for splitline in capsys.readouterr().out.splitlines())
    assert line["rules"]
    assert not list(object_faults(line, "checked", "check"))


@pytest.mark.parametrize("phases", [("scalar",), ("avx2", "scalar", "avx2")])
def test_ramps_match_the_page(phases: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Checks answers with all nullable and all optional values."""
    run = chains.run(
        [(300e-6, 1.2e9), (1.0, 3.0e9)], [(2e-4, 1e-4)], load_s=0.1, phases=[0.05, 0.075],
        preempted=[0], counter=1.0 if len(phases) == 1 else None,
    )  # fmt: skip
    results = [{"isa": isa, "seconds": 0.05} for isa in phases]

    def answer_of_probe(verb: str, *_: str) -> dict[str, Any]:
        cpus = [{"cpu": cpu, "online": True} for cpu in (0, 1)]
        return {"cpus": cpus} if verb == "topology" else chains.answer(*[run] * 3, phases=results)

    for cpu in (None, "all"):
        options = cli._parse_arguments(["ramp", "--json", "--isa", phases[0]])
        options.cpu = cpu
        assert ramp.measure(options, answer_of_probe) == 0
    one, every = map(json.loads, capsys.readouterr().out.splitlines())
    assert check("ramp", [one, *every["cpus"]]) == {"ramp"}
    assert set(every) == {"cpus", "failed"}


@pytest.mark.nightly
def test_the_selftest_matches_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["selftest", "--all", "--json"]) in {0, 1}  # all checks are printed either way
    assert check("selftest", [json.loads(capsys.readouterr().out)]) == {"selftest"}


def test_the_check_of_lines_detects_faults() -> None:
    good = {"neither": 1.0, "lp0": 0.0, "lp1": None, "both": 0}
    assert not list(object_faults(good, "states", "smt"))
    assert list(object_faults(good | {"more": 1}, "states", "smt")) == [
        "smt.more is not on the page"
    ]
    assert list(object_faults(good | {"lp0": "0"}, "states", "smt")) == [
        "smt.lp0 is no number: '0'"
    ]
    assert faults({"a": [1, "x"]}, "{[integer]} / null", "it") == ["it.a.1 is no integer: 'x'"]
