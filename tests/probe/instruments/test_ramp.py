"""`perfprobe ramp`: choice of the CPU, machine code, and output. No test asserts a time."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import command
import fakeperf
import pytest
import trees
from c_programs import CSRC, listing
from waiting import MAX_WAIT_S

from perfprobe.__main__ import main
from perfprobe._native import lib
from perfprobe.cpu import topology
from perfprobe.errors import Unavailable
from perfprobe.instruments import ramp
from perfprobe.kernel import access
from perfprobe.native import affinity, tsc_rate
from perfprobe.perf import perf_events
from perfprobe.perf.perf_events import CYCLES
from perfprobe.perf.perf_pmus import open_core_event

# --- machine code ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def disassembly(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Returns the mnemonics of each function; the compiler's flags do not change inline
    assembly."""
    text = listing("ramp_chains.c", tmp_path_factory.mktemp("ramp"))
    results: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.endswith(">:"):
            name = line.partition("<")[2][:-2]
        elif "\t" in line and line.strip():
            results.setdefault(name, []).append(line.split("\t")[1].strip())
    return results


def loop(code: list[str]) -> list[str]:
    """Returns the instructions from the jump's target to the jump back."""
    end = next(i for i, line in enumerate(code) if line.startswith("jne"))
    target = next(i for i, line in enumerate(code) if line.startswith("imul"))
    assert not any(line.startswith("j") for line in code[target:end])
    return code[target:end]


@pytest.mark.parametrize(("name", "register"), [("scalar", ""), ("avx2", "ymm"), ("avx512", "zmm")])
def test_a_block_has_its_instructions(
    disassembly: dict[str, list[str]], name: str, register: str
) -> None:
    body = loop(disassembly[f"chain_{name}"])
    count = Counter(line.split()[0] for line in body)
    wide = lib.PP_RAMP_WIDE * lib.PP_RAMP_BLOCK if register else 0
    assert count["imul"] == lib.PP_RAMP_BLOCK
    assert count["vfmadd213ps"] == wide
    # plus 1 for the decrement of the count
    assert sum(count.values()) == lib.PP_RAMP_BLOCK + wide + 1
    assert count["dec"] == 1
    assert all(register in line for line in body if line.startswith("v"))


@pytest.mark.parametrize("name", ["scalar", "avx2", "avx512"])
def test_each_step_waits_for_the_previous_step(
    disassembly: dict[str, list[str]], name: str
) -> None:
    steps = {line for line in loop(disassembly[f"chain_{name}"]) if line.startswith("imul")}
    assert len(steps) == 1  # all steps use the same two registers
    source, target = steps.pop().split()[1].split(",")
    assert source != target
    assert source.startswith("%r")  # %r: a register of 64 bits


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_wide_steps_do_not_wait_for_each_other(
    disassembly: dict[str, list[str]], name: str
) -> None:
    """Each accumulator is used again only after four steps, which take longer than an FMA."""
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


# --- choice of the CPU ----------------------------------------------------------------------------


def rows(tmp_path: Path) -> list[Any]:
    trees.write_cpu_lists(tmp_path, "0-3", "0-1,3")
    for n in (0, 1, 3):
        trees.write_cpu(tmp_path, n, 0, n, f"{n}")
    return topology.read_cpus(tmp_path)


@pytest.mark.parametrize(("cpu", "error", "text"), [
    (9, ValueError, "--cpu 9: no such CPU (online: 0-1,3)"),
    (2, Unavailable, ("--cpu 2: it is offline; to bring it online: echo 1 | sudo tee "
                     "/sys/devices/system/cpu/cpu2/online")),
    (3, Unavailable, ("--cpu 3: perftop may run on 0-1 only; "
                     "start it outside the container or cpuset")),
])  # fmt: skip
def test_a_cpu_that_cannot_be_measured_is_refused(
    tmp_path: Path, cpu: int, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        affinity.require_cpu(cpu, rows(tmp_path), {0, 1})
    assert str(raised.value) == text


# --- duration -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("isa", "seconds", "idle_ms", "phases"), [
    ("scalar", 1.0, 100, [0.1]), ("scalar", 5.0, 500, [0.5]), ("scalar", 60.0, 500, [11.5]),
    ("avx2", 4.0, 400, [0.2, 0.1, 0.1]), ("avx512", 60.0, 500, [5.75, 2.875, 2.875]),
])  # fmt: skip
def test_all_runs_together_take_the_requested_time(
    isa: str, seconds: float, idle_ms: int, phases: list[float]
) -> None:
    work = ramp.workload(isa, seconds)
    assert work.idle_ns == idle_ms * 1_000_000
    assert [name for name, _ in work.phases] == [isa, "scalar", isa][: len(phases)]
    assert [length for _, length in work.phases] == pytest.approx(phases)
    assert ramp.RUNS * (idle_ms / 1e3 + work.load_s) == pytest.approx(seconds)


@pytest.mark.parametrize(("tsc_hz", "blocks"), [(2.1e9, 55), (4e9, 104), (1e6, 1)])
def test_a_piece_has_whole_blocks_that_take_5_us(tsc_hz: float, blocks: int) -> None:
    """A block has 64 steps of 3 cycles."""
    assert ramp._block_count(tsc_hz) == blocks


@pytest.mark.parametrize(("name", "core_type", "cycles"), [
    ("Skylake-SP", None, 3), ("Zen 4", None, 3), ("Emerald Rapids", None, 3),
    ("Alder Lake", "P", 3), ("Alder Lake", "E", None), ("Alder Lake-N", None, None),
    ("Sierra Forest", None, None), ("Knights Landing", None, None),
    ("Goldmont Plus", None, None), ("unknown (X)", None, None), ("Lunar Lake", "P", None),
    ("Arrow Lake", "P", 3), ("Arrow Lake", "E", None), ("Arrow Lake-U", "P", 3),
])  # fmt: skip
def test_cycles_of_a_step_are_reported_only_if_known(
    name: str, core_type: str | None, cycles: int | None
) -> None:
    assert ramp.step_cycles(name, core_type) == cycles


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ["scalar", "avx512"])
def test_the_command_prints_runs_or_names_the_missing_isa(isa: str) -> None:
    result = command.run("ramp", "--isa", isa, "--seconds", "1", program="perfprobe")
    cpu = max(os.sched_getaffinity(0))
    with affinity.pinned_to(cpu):
        there = lib.pp_ramp_isas() >> ramp.ISAS.index(isa) & 1
    if not there:
        assert (result.returncode, result.stdout) == (3, "")
        assert result.stderr.startswith(f"perfprobe: --isa {isa} needs ")
        return
    assert (result.returncode, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
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
        assert (run["idle_s"], run["load_s"]) == (0.1, pytest.approx(0.1))
        assert 0 <= run["late_s"] < MAX_WAIT_S
        assert run["around"]["idle_s"] is None or run["around"]["idle_s"] >= 0


@pytest.mark.parametrize(("arguments", "status", "text"), [
    (["--seconds", "0.5"], 2, "--seconds 0.5: must be from 1 to 60"),
    (["--seconds", "61"], 2, "--seconds 61: must be from 1 to 60"),
    (["--seconds", "nan"], 2, "--seconds: invalid number 'nan' (try 1 or 0.5)"),
    (["--isa", "sse"], 2, "unknown ISA 'sse'; known: scalar, avx2, avx512"),
])  # fmt: skip
def test_impossible_requests_are_reported_in_one_line(
    arguments: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ramp", *arguments]) == status
    output = capsys.readouterr()
    (line,) = output.err.splitlines()
    assert output.out == ""
    assert line.startswith(f"perfprobe: {text}")


def test_a_cpu_without_the_isa_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
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


# --- ramp runs ------------------------------------------------------------------------------------


FAKE_LIBRARY = r"""
#include "perf.h"
#include "cpu.h"

static struct perf_event_mmap_page page = {.lock = 2, .index = 3, .pmc_width = 48, .time_mult = 1};
static uint64_t calls;
uint64_t gone_at, back_at; /* the reading that finds it taken away for good; or that it was away */
uint64_t slow;             /* how many TSC readings one takes */

static int rdpmc(uint32_t index, uint64_t *count)
{
    (void)index;
    for (uint64_t i = 0; i < slow; i++)
        pp_rdtsc();
    if (++calls == gone_at)
        page.index = 0;
    if (calls == back_at)
        page.time_enabled += 1000000000;
    *count = pp_rdtsc() * 3 / 2 & 0x7fffffffffff;
    return 0;
}

static const struct pp_perf_ops ops = {.rdpmc = rdpmc, .rdtsc = pp_rdtsc};
static struct pp_perf_group group = {.ops = &ops, .n = 1, .uses_rdpmc = true, .pages = {&page}};

struct pp_perf_group *made_up(void)
{
    page.cap_user_rdpmc = page.cap_user_time = 1;
    page.index = 3;
    calls = 0;
    return &group;
}
"""
FIRST_PIECE = 135
"""Number of the read after the first piece of the first run: the trial before it takes 132 reads,
and the run starts with two. On a busy machine, later reads may be between runs."""
FASTER = 1.5
"""Ratio of this counter's rate to the TSC's rate; no chain has this ratio."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("cc") is None:
        pytest.skip("no cc here")
    where = tmp_path_factory.mktemp("counter")
    (where / "made.c").write_text(FAKE_LIBRARY)
    subprocess.run(
        ["cc", "-std=c11", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", f"-I{CSRC}",
         str(where / "made.c"), "-o", str(where / "made.so")],
        check=True, timeout=MAX_WAIT_S,
    )  # fmt: skip
    result = ctypes.CDLL(str(where / "made.so"))
    result.made_up.restype = ctypes.c_void_p
    return result


WORK = ramp.Workload(1_000_000, [("scalar", 0.02)])


def measured_runs(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, **faults: int
) -> tuple[list[dict[str, Any]], access.Problem | None]:
    for name in ("gone_at", "back_at", "slow"):
        ctypes.c_uint64.in_dll(library, name).value = faults.get(name, 0)
    group = fakeperf.Group([], timed=True, address=library.made_up(), uses_rdpmc=True)
    open_event = Mock(return_value=group)
    monkeypatch.setattr("perfprobe.perf.perf_pmus.open_core_event", open_event)
    cpu = max(os.sched_getaffinity(0))
    with affinity.pinned_to(cpu):
        result = ramp.measure_runs(WORK, tsc_rate.calibrate().hz, cpu, [])
    assert open_event.call_args.args[1:] == (cpu, CYCLES)
    assert open_event.call_args.kwargs == {"by_rdpmc": True, "with_trial": True}
    assert group.closed
    return result


def test_each_chunk_has_its_cycles(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, problem = measured_runs(library, monkeypatch)
    assert problem is None
    assert len(runs) == ramp.RUNS
    for run in runs:
        chunks = run["chunks"]
        ticks = [
            end - begin - aside
            for begin, end, aside in zip(
                chunks["begin"], chunks["end"], chunks["aside"], strict=True
            )
        ]
        assert sum(chunks["cycles"]) == pytest.approx(FASTER * sum(ticks), rel=1e-2)
        assert all(map(int.__le__, chunks["longest_cycles"], chunks["cycles"]))


@pytest.mark.parametrize(("faults", "why"), [
    ({"gone_at": 5}, "the kernel gave the counter to other programs while it was needed"),
    ({"gone_at": FIRST_PIECE}, "the kernel gave the counter to other programs while it was needed"),
    ({"back_at": FIRST_PIECE}, "the kernel gave the counter to other programs while it was needed"),
    ({"slow": 200}, "RDPMC takes "),
])  # fmt: skip
def test_an_unfit_counter_leaves_runs_without_cycles(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, faults: dict[str, int], why: str
) -> None:
    """If the counter fails before the first run or during the runs, or costs too much, no run has
    cycles."""
    runs, problem = measured_runs(library, monkeypatch, **faults)
    assert problem is not None
    assert problem.why.startswith(why)
    assert len(runs) == ramp.RUNS
    assert {run["chunks"][key] for run in runs for key in ramp.UNCOUNTED} == {None}


# --- cycle counter --------------------------------------------------------------------------------


class DirectKernel(fakeperf.Kernel):
    def group(self, fds: Sequence[int], *, timed: bool, mapped: bool) -> fakeperf.Group:
        result = super().group(fds, timed=timed, mapped=mapped)
        result.uses_rdpmc = True
        return result


@pytest.mark.parametrize(("pmus", "config"), [
    ({"cpu": (4, None)}, 0),
    ({"cpu_core": (4, "0-1"), "cpu_atom": (10, "2-3")}, 10 << 32),
])  # fmt: skip
def test_cycles_are_counted_in_all_rings_of_that_cpu(
    tmp_path: Path, pmus: dict[str, tuple[int, str | None]], config: int
) -> None:
    for name, (number, cpus) in pmus.items():
        fakeperf.write_pmu(tmp_path, name, number, cpus)
    kernel = DirectKernel()
    kernel.root = tmp_path
    group = open_core_event(kernel, 3, CYCLES, by_rdpmc=True, with_trial=True)
    assert kernel.groups == [group]
    ((event, cpu, leader, host_only),) = kernel.opened.values()
    assert (event.type, event.config, event.kernel_only) == (perf_events.HARDWARE, config, False)
    assert (cpu, leader, host_only) == (3, perf_events.NO_LEADER, False)


def refusal_of_counter(kernel: fakeperf.Kernel, root: Path) -> access.Problem:
    kernel.root = root
    with pytest.raises(perf_events.RefusedError) as raised:
        open_core_event(kernel, 0, CYCLES, by_rdpmc=True, with_trial=True)
    assert all(group.closed for group in kernel.groups)
    return raised.value.problem


def test_a_missing_counter_has_its_reason(tmp_path: Path) -> None:
    assert "no core PMU" in refusal_of_counter(DirectKernel(), tmp_path).why
    fakeperf.write_pmu(tmp_path, "cpu", 4)
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "2\n")
    trees.put(tmp_path, "proc/self/status", "CapEff:\t0000000000000000\n")
    held = refusal_of_counter(DirectKernel(refuse=lambda *_: errno.EACCES), tmp_path)
    assert held.why == "needs CAP_PERFMON or kernel.perf_event_paranoid <= 0 (it is 2)"
    assert "does not count" in refusal_of_counter(DirectKernel(moved={"cycles": 0}), tmp_path).why
    assert "only 0 counters free" in refusal_of_counter(DirectKernel(1, taken=1), tmp_path).why
    assert "RDPMC may not read it" in refusal_of_counter(fakeperf.Kernel(), tmp_path).why
    trees.put(tmp_path, f"{fakeperf.DEVICES}/cpu/rdpmc", "0\n")
    forbidden = refusal_of_counter(fakeperf.Kernel(), tmp_path)
    assert forbidden.why == "the kernel forbids RDPMC"
    assert forbidden.fix == f"echo 1 | sudo tee {tmp_path}/{fakeperf.DEVICES}/cpu/rdpmc"
