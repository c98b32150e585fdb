"""From idle to load: which CPU, which code, and what comes of it. Nothing here asserts a time."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import command
import pytest
import trees
from disassembly import listing

from perfprobe.__main__ import main
from perfprobe._native import lib
from perfprobe.cpu import topology
from perfprobe.errors import Unavailable
from perfprobe.instruments import ramp
from perfprobe.native import affinity

# --- the code itself -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def disassembly(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Mnemonics of each function; the compiler's own flags play no part in assembler text."""
    text = listing("ramp_chains.c", tmp_path_factory.mktemp("ramp"))
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.endswith(">:"):
            name = line.partition("<")[2][:-2]
        elif "\t" in line and line.strip():
            found.setdefault(name, []).append(line.split("\t")[1].strip())
    return found


def loop(code: list[str]) -> list[str]:
    """From the jump's target on: what lies between the padding and the jump back."""
    end = next(i for i, line in enumerate(code) if line.startswith("jne"))
    target = next(i for i, line in enumerate(code) if line.startswith("imul"))
    assert not any(line.startswith("j") for line in code[target:end])
    return code[target:end]


@pytest.mark.parametrize(("name", "register"), [("scalar", ""), ("avx2", "ymm"), ("avx512", "zmm")])
def test_a_block_is_what_it_says(
    disassembly: dict[str, list[str]], name: str, register: str
) -> None:
    body = loop(disassembly[f"chain_{name}"])
    count = Counter(line.split()[0] for line in body)
    wide = lib.PP_RAMP_WIDE * lib.PP_RAMP_BLOCK if register else 0
    assert count["imul"] == lib.PP_RAMP_BLOCK
    assert count["vfmadd213ps"] == wide
    assert sum(count.values()) == lib.PP_RAMP_BLOCK + wide + 1  # and the count goes down
    assert count["dec"] == 1
    assert all(register in line for line in body if line.startswith("v"))


@pytest.mark.parametrize("name", ["scalar", "avx2", "avx512"])
def test_each_step_waits_for_the_one_before(disassembly: dict[str, list[str]], name: str) -> None:
    steps = {line for line in loop(disassembly[f"chain_{name}"]) if line.startswith("imul")}
    assert len(steps) == 1  # the same two registers throughout
    source, target = steps.pop().split()[1].split(",")
    assert source != target
    assert source.startswith("%r")  # 64 bits


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_wide_steps_do_not_wait_for_each_other(
    disassembly: dict[str, list[str]], name: str
) -> None:
    """Each accumulator comes again only after four steps, which take longer than an FMA."""
    body = [line for line in loop(disassembly[f"chain_{name}"]) if not line.startswith("dec")]
    last: dict[str, int] = {}
    for at, line in enumerate(body):
        if line.startswith("v"):
            target = line.rpartition(",")[2]
            between = body[last.get(target, -100) + 1 : at] if target in last else None
            assert between is None or sum(l.startswith("imul") for l in between) == 4
            last[target] = at
    assert len(last) == 8
    assert any("vzeroupper" in line for line in disassembly[f"chain_{name}"])


# --- which CPU -----------------------------------------------------------------------------------


def rows(tmp_path: Path) -> list[Any]:
    trees.lists(tmp_path, "0-3", "0-1,3")
    for n in (0, 1, 3):
        trees.cpu(tmp_path, n, 0, n, f"{n}")
    return topology.read(tmp_path)


def test_the_cpu_to_measure(tmp_path: Path) -> None:
    there = rows(tmp_path)
    assert ramp.chosen(None, there, {0, 1, 3}).cpu == 3
    assert ramp.chosen(None, there, {0, 1}).cpu == 1
    assert ramp.chosen(0, there, {0, 1}).cpu == 0


@pytest.mark.parametrize(("asked", "error", "text"), [
    (9, ValueError, "--cpu 9: there is no such CPU; online are 0-1,3"),
    (2, Unavailable, ("--cpu 2: it is off; to switch it on: echo 1 | sudo tee "
                     "/sys/devices/system/cpu/cpu2/online")),
    (3, Unavailable, ("--cpu 3: perftop may run on 0-1 only; "
                     "start it outside the container or cpuset")),
])  # fmt: skip
def test_a_cpu_that_cannot_be_measured(
    tmp_path: Path, asked: int, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        ramp.chosen(asked, rows(tmp_path), {0, 1})
    assert str(raised.value) == text


def test_siblings_are_the_other_threads_that_are_on(tmp_path: Path) -> None:
    trees.xeon(tmp_path)
    there = {row.cpu: row for row in topology.read(tmp_path)}
    assert affinity.siblings(there[3], list(there.values())) == [51]
    assert affinity.siblings(there[51], list(there.values())) == [3]
    alone = tmp_path / "alone"
    trees.xeon(alone, smt=False)
    there = {row.cpu: row for row in topology.read(alone)}
    assert affinity.siblings(there[3], list(there.values())) == []


# --- how long ------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ramp.ISAS)
@pytest.mark.parametrize("seconds", [1.0, 5.0, 60.0])
def test_all_runs_together_take_as_long_as_asked(isa: str, seconds: float) -> None:
    work = ramp.workload(isa, seconds)
    load = sum(span for _, span in work.phases)
    assert ramp.RUNS * (work.idle_ns / 1e9 + load) == pytest.approx(seconds)
    assert work.phases[0][0] == work.phases[-1][0] == isa


@pytest.mark.parametrize(("name", "core_type", "cycles"), [
    ("Skylake-SP", None, 3), ("Zen 4", None, 3), ("Emerald Rapids", None, 3),
    ("Alder Lake", "P", 3), ("Alder Lake", "E", None), ("Alder Lake-N", None, None),
    ("Sierra Forest", None, None), ("Knights Landing", None, None),
    ("Goldmont Plus", None, None), ("unknown (X)", None, None), ("Lunar Lake", "P", None),
    ("Arrow Lake", "P", 3), ("Arrow Lake", "E", None), ("Arrow Lake-U", "P", 3),
])  # fmt: skip
def test_cycles_are_told_only_where_they_are_known(
    name: str, core_type: str | None, cycles: int | None
) -> None:
    assert ramp.step_cycles(name, core_type) == cycles


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ["scalar", "avx512"])
def test_the_command(isa: str) -> None:
    done = command.run("ramp", "--isa", isa, "--seconds", "1", program="perfprobe")
    cpu = max(os.sched_getaffinity(0))
    with affinity.pinned(cpu):
        there = lib.pp_ramp_isas() >> ramp.ISAS.index(isa) & 1
    if not there:
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith(f"perfprobe: --isa {isa} needs ")
        return
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert (answer["cpu"], answer["isa"]) == (cpu, isa)
    assert len(answer["runs"]) == ramp.RUNS
    for run in answer["runs"]:
        chunks = run["chunks"]
        for key in ("cycles", "longest_cycles"):
            assert (chunks[key] is None) is (answer["cycles_why"] is not None)
        assert len({len(column) for column in chunks.values() if column is not None}) == 1
        assert set(chunks["phase"]) == set(range(len(answer["phases"])))
        assert chunks["begin"][0] == 0
        assert chunks["begin"][1:] == chunks["end"][:-1]
        assert run["around"]["idle_s"] is None or run["around"]["idle_s"] >= 0


@pytest.mark.parametrize(("arguments", "status", "text"), [
    (["--seconds", "0.5"], 2, "--seconds 0.5: from 1 to 60"),
    (["--seconds", "61"], 2, "--seconds 61: from 1 to 60"),
    (["--seconds", "nan"], 2, "--seconds nan: from 1 to 60"),
    (["--isa", "sse"], 2, "--isa sse: there are scalar, avx2, avx512"),
    (["--cpu", "60000"], 2, "--cpu 60000: there is no such CPU"),
    (["--cpu", "-1"], 2, "--cpu -1: there is no such CPU"),
])  # fmt: skip
def test_what_cannot_be(
    arguments: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ramp", *arguments]) == status
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert said.out == ""
    assert line.startswith(f"perfprobe: {text}")


def test_a_cpu_that_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lib:
        @staticmethod
        def pp_ramp_isas() -> int:
            return 1 << lib.PP_RAMP_SCALAR

    monkeypatch.setattr(ramp, "lib", Lib)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    before = os.sched_getaffinity(0)
    with pytest.raises(Unavailable) as raised:
        ramp.measure(max(before), "avx512", 1.0)
    assert str(raised.value).startswith("--isa avx512 needs AVX-512F and FMA: this CPU")
    assert os.sched_getaffinity(0) == before
