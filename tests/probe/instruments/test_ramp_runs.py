"""Runs from idle to load beside a made-up counter of cycles."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from typing import Any

import fakeperf
import pytest
from disassembly import CSRC
from waiting import MOST_S

from perfprobe.instruments import ramp
from perfprobe.kernel import access
from perfprobe.native import affinity, tsc_rate

MADE_UP = r"""
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
static struct pp_perf_group group = {.ops = &ops, .n = 1, .direct = true, .pages = {&page}};

struct pp_perf_group *made_up(void)
{
    page.cap_user_rdpmc = page.cap_user_time = 1;
    page.index = 3;
    calls = 0;
    return &group;
}
"""
FIRST_PIECE = 135
"""The reading after the first piece of the first run: what is tried before takes 132 readings, and
the run begins with two. Later ones may fall between runs where the machine is busy."""
FASTER = 1.5
"""Than the TSC: what this counter counts. No chain says so."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("cc") is None:
        pytest.skip("no cc here")
    where = tmp_path_factory.mktemp("counter")
    (where / "made.c").write_text(MADE_UP)
    subprocess.run(
        ["cc", "-std=c11", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", f"-I{CSRC}",
         str(where / "made.c"), "-o", str(where / "made.so")],
        check=True, timeout=MOST_S,
    )  # fmt: skip
    made = ctypes.CDLL(str(where / "made.so"))
    made.made_up.restype = ctypes.c_void_p
    return made


WORK = ramp.Workload(1_000_000, [("scalar", 0.02)])


def measured(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, **how: int
) -> tuple[list[dict[str, Any]], access.Trouble | None]:
    for name in ("gone_at", "back_at", "slow"):
        ctypes.c_uint64.in_dll(library, name).value = how.get(name, 0)
    group = fakeperf.Group([], timed=True, address=library.made_up(), direct=True)
    monkeypatch.setattr(ramp, "open_cycles", lambda _cpu: group)
    cpu = max(os.sched_getaffinity(0))
    with affinity.pinned(cpu):
        found = ramp.measure_runs(WORK, tsc_rate.calibrate().hz, cpu, [])
    assert group.closed
    return found


def test_cycles_of_each_chunk(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, trouble = measured(library, monkeypatch)
    assert trouble is None
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


@pytest.mark.parametrize(("how", "why"), [
    ({"gone_at": 5}, "the kernel gave the counter to others while it was needed"),
    ({"gone_at": FIRST_PIECE}, "the kernel gave the counter to others while it was needed"),
    ({"back_at": FIRST_PIECE}, "the kernel gave the counter to others while it was needed"),
    ({"slow": 200}, "RDPMC takes "),
])  # fmt: skip
def test_a_counter_that_does_not_serve(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, how: dict[str, int], why: str
) -> None:
    """Before the first run, in the midst of them, and by what it costs: then no run has cycles."""
    runs, trouble = measured(library, monkeypatch, **how)
    assert trouble is not None
    assert trouble.why.startswith(why)
    assert len(runs) == ramp.RUNS
    assert {run["chunks"][key] for run in runs for key in ramp.UNCOUNTED} == {None}
