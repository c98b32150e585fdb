"""What verbs print as JSON is what the tables of the page say: no key more, none less, and values
of the types that they name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perftop import cli
from perftop.docs.page import cells, read

SIM = "--source=sim:{},cpus=4,speed=max"
RENAMED = {"fleet": {"machine": "fleet_machine", "episode": "fleet_episode"}}
"""By verb: lines whose type is also that of another verb's."""
INHERITS = {"run": "summary", "phase": "summary", "episode-start": "episode"}
"""Lines that have the keys of another as well, but for some that only the whole has."""
NOT_INHERITED = {"run": {"cpus", "cores"}}


def tables() -> dict[str, dict[str, str]]:
    """The types of keys, by name of the table."""
    found: dict[str, dict[str, str]] = {}
    name = ""
    for block in read("json").blocks:
        if block.kind == "heading":
            name = block.lines[0]
        elif block.kind == "table":
            for row in block.lines[1:]:
                keys, value, _ = cells(row)
                keyed = {key.strip(" `"): value for key in keys.split(",")}
                found.setdefault(name, {}).update(keyed)
    for name, other in INHERITS.items():
        left = NOT_INHERITED.get(name, set())
        kept = {key: value for key, value in found[other].items() if key not in left}
        found[name] = kept | found.get(name, {})
    return found


TABLES = tables()
PLAIN: dict[str, type | tuple[type, ...]] = {
    "text": str, "number": (int, float), "whole": int, "truth": bool, "null": type(None),
    "any": object,
}  # fmt: skip


def alternatives(said: str) -> list[str]:
    """Split at slashes outside brackets."""
    parts, depth = [""], 0
    for sign in said:
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign, 0)
        if sign == "/" and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def faults(value: Any, said: str, at: str) -> list[str]:
    """What of a value is not as the page says; none if one alternative fits."""
    named = [each for each in alternatives(said) if (each == "null") is (value is None)]
    tried = [list(_faults(value, each, at)) for each in named or [said]]
    return min(tried, key=len)


def _faults(value: Any, said: str, at: str) -> Iterator[str]:
    if said.startswith(("[", "{")):
        inner = said[1:-1]
        if not isinstance(value, list if said[0] == "[" else dict):
            yield f"{at} is no {said}"
            return
        pairs = enumerate(value) if isinstance(value, list) else value.items()
        for key, each in pairs:
            yield from faults(each, inner, f"{at}.{key}")
    elif said in PLAIN:
        if not isinstance(value, PLAIN[said]) or (isinstance(value, bool) and said != "truth"):
            yield f"{at} is no {said}: {value!r:.40}"
    elif not isinstance(value, dict):
        yield f"{at} is no {said}"
    else:
        yield from object_faults(value, said, at)


def object_faults(value: dict[str, Any], name: str, at: str) -> Iterator[str]:
    table = TABLES[name]
    chosen = {key: "e.NAME" for key in value if key.startswith("e.")}  # events of -e
    value = {chosen.get(key, key): each for key, each in value.items()}
    for key in value.keys() - table.keys():
        yield f"{at}.{key} is not on the page"
    for key, said in table.items():
        if key in value:
            yield from faults(value[key], said.removeprefix("optional "), f"{at}.{key}")
        elif not said.startswith("optional "):
            yield f"{at}.{key} is missing"


def printed(line: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert cli.main(line) == 0
    return [json.loads(each) for each in capsys.readouterr().out.splitlines()]


def check(verb: str, lines: list[dict[str, Any]]) -> set[str]:
    """The kinds of lines; each is as the page says."""
    kinds = set()
    for line in lines:
        kind = line.get("type", verb)
        kinds.add(kind)
        name = RENAMED.get(verb, {}).get(kind, kind)
        found = list(object_faults(line, name, kind))
        assert not found, found[:8]
    return kinds


@pytest.mark.parametrize("scenario", ["turbo-drop", "neighbour", "guest"])
def test_stat(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["stat", "--json", SIM.format(scenario).replace("guest,cpus=4", "guest")]
    line += ["-e", "branch-misses,context-switches"] if scenario == "turbo-drop" else []
    kinds = check("stat", printed([*line, "-n", "13"], capsys))
    assert kinds >= {"hello", "interval", "summary"}
    assert scenario == "guest" or "episode" in kinds


def test_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    line = ["stat", "--json", "-o", "-", SIM.format("steady").replace("max", "9")]
    assert {"hello", "summary"} <= check("stat", printed([*line, "--", "true"], capfd))
    assert check("stat", printed([*line, "-r", "3", "--", "true"], capfd)) == {
        "hello", "run", "runs",
    }  # fmt: skip


def test_why(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(["why", "--json", SIM.format("neighbour"), "--watch", "lmp"], capsys)
    assert lines[0]["causes"]
    assert check("why", lines) == {"why"}


def test_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    for path, scenario in zip(paths, ("turbo-drop", "steady"), strict=True):
        assert cli.main(["record", SIM.format(scenario), "--duration", "10s", "-o", path]) == 0
    capsys.readouterr()
    assert check("summary", printed(["summary", "--json", paths[0]], capsys)) == {"phase"}
    assert check("diff", printed(["diff", "--json", *paths], capsys)) == {"diff"}
    kinds = check("export", printed(["export", "--format", "jsonl", paths[0]], capsys))
    assert kinds == {"hello", "interval", "episode-start", "episode", "summary"}


def test_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["fleet", "--json", "-n", "1", "sim:throttle,cpus=4,speed=9", "sim:nothing"]
    lines = printed(line, capsys)
    assert {each["answers"] for each in lines} == {True, False}
    assert check("fleet", lines) == {"machine"}


@pytest.mark.parametrize("verb", ["topology", "doctor", "events"])
def test_looks_at_this_machine(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(verb, printed([verb, "--json"], capsys)) == {verb}


@pytest.mark.nightly
def test_the_selftest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["selftest", "--json"]) in {0, 1}  # either way it prints all
    assert check("selftest", [json.loads(capsys.readouterr().out)]) == {"selftest"}


def test_a_fault_is_found() -> None:
    good = {"neither": 1.0, "lp0": 0.0, "lp1": None, "both": 0}
    assert not list(object_faults(good, "states", "smt"))
    assert list(object_faults(good | {"more": 1}, "states", "smt")) == [
        "smt.more is not on the page"
    ]
    assert list(object_faults(good | {"lp0": "0"}, "states", "smt")) == [
        "smt.lp0 is no number: '0'"
    ]
    assert faults({"a": [1, "x"]}, "{[whole]} / null", "it") == ["it.a.1 is no whole: 'x'"]
