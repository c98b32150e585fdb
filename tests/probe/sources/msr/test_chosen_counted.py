"""`-e` with `--source msr` on a machine: what is programmed, what stays alone, and that everything
is given back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pmu_formats
import pytest
import read_rows
from command import here, lines
from fakekernel.client import FakeKernel, unavailable
from fakeperf import DEVICES
from journals import left
from started import some, started
from waiting import whenever_due

from perfprobe import wire
from perfprobe.errors import Unavailable
from perfprobe.sources.msr.source import Msr, open_msr

pytestmark = [
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "it can be mounted"),
    pytest.mark.usefixtures("run_dir"),
]

ENABLED = 0x53003C


def put_pmu(kernel: FakeKernel, name: str) -> FakeKernel:
    """Its kernel shows the PMU as that of one of the machines does."""
    for pmu, number, _, formats, events in pmu_formats.MACHINES[name]:
        at = f"{DEVICES}/{pmu}"
        texts = {"type": str(number), **{f"format/{term}": bits for term, bits in formats.items()}}
        texts |= {f"events/{event}": terms for event, terms in events.items()}
        for path, text in texts.items():
            kernel.ask("file", path=f"{at}/{path}", text=f"{text}\n")
    return kernel


@pytest.fixture
def skylake(fake: FakeKernel) -> FakeKernel:
    return put_pmu(fake, "skylake-sp")


EVENTS = "{rc0,rc0:u},rc4:k,r0728,r14a3"
SELECTS = {
    "e.rc0": 0x4300C0, "e.rc0:u": 0x4100C0, "e.rc4:k": 0x4200C4, "e.r0728": 0x430728,
    "e.r14a3": 0x4314A3,
}  # fmt: skip


def test_each_is_read_where_it_is_programmed(tmp_path: Path) -> None:
    """The counters stand still, each at its own value."""
    start = [[cpu, 0xC1 + n, 1000 * cpu + n] for cpu in range(4) for n in range(8)]
    spec = {"model": "ice-lake-sp", "frozen": True, "registers": start}
    with FakeKernel(tmp_path / "root", **spec) as kernel:
        put_pmu(kernel, "ice-lake-sp")
        with closing(open_msr(kernel.root, 100_000_000, None, events=EVENTS)) as source:
            selects = {kernel.peek(2, 0x186 + n): n for n in range(8)}
            found = first_values(source, cpu=2)
        assert kernel.changed() == {}
    assert found == {key: 2000 + selects[value] for key, value in SELECTS.items()}
    assert set(selects) == {*SELECTS.values(), 0x43023C, 0x42003C, 0x4200C0}
    assert selects[SELECTS["e.r0728"]] < 4  # Ice Lake counts it there only


def first_values(source: Msr, cpu: int) -> dict[str, int]:
    """Raw values of chosen events, of the first frame that has them all."""
    hello = source.hello
    row = [row.cpu for row in hello.topology].index(cpu)
    for messages in whenever_due(source.due, source.poll, "a frame"):
        for frame in messages:
            if isinstance(frame, wire.Frame) and read_rows.valid(hello, frame.blocks, "ref")[row]:
                return {
                    key: read_rows.raw(hello, frame.blocks, key)[row, 0].item() for key in SELECTS
                }
    raise AssertionError


def test_they_reach_the_lines_of_stat(tmp_path: Path) -> None:
    with FakeKernel(tmp_path / "root", model="ice-lake-sp") as kernel:
        put_pmu(kernel, "ice-lake-sp")
        below = ("--source", "msr", "--sysroot", str(kernel.root))
        done = here("stat", "--json", "-i", "100ms", "-n", "1", *below, "-e", EVENTS)
        assert done.returncode == 0, done.stderr
        assert kernel.changed() == {}
    (interval,) = lines(done.stdout, "interval")
    for row in interval["cpus"]:
        assert {key for key in row["counts"] if key.startswith("e.")} == set(SELECTS)


def test_what_does_not_fit_is_refused_before_anything_is_written(skylake: FakeKernel) -> None:
    with pytest.raises(Unavailable, match="-e r02d1: no counter is left for it"):
        open_msr(skylake.root, 100_000_000, None, events="r01d1,r02d1")
    assert skylake.writes() == []


def test_counters_that_somebody_uses_are_left_alone(tmp_path: Path) -> None:
    """Counter 3 is one that only a chosen event would take."""
    used = [[cpu, 0x189, ENABLED] for cpu in range(4)]
    with FakeKernel(tmp_path / "root", registers=used) as kernel:
        put_pmu(kernel, "skylake-sp")
        with pytest.raises(Unavailable, match="MSR 189H = 53003CH"):
            open_msr(kernel.root, 100_000_000, None, events="r01d1")
        assert kernel.writes() == []
    with FakeKernel(tmp_path / "root", registers=used[:1]) as kernel:
        put_pmu(kernel, "skylake-sp")
        with closing(open_msr(kernel.root, 100_000_000, None, events="r01d1")) as source:
            (lost,) = [m for m in source.hello.missing if m.what == "e.r01d1"]
            assert (lost.cpus, "in use" in lost.why) == ([0], True)
            assert kernel.peek(0, 0x189) == ENABLED
            assert {kernel.peek(cpu, 0x189) for cpu in (1, 2, 3)} == {0x4301D1}
        assert kernel.changed() == {}


def test_writes_that_the_kernel_refuses_end_it(tmp_path: Path) -> None:
    """Without events the registers are read all the same; these cannot be had so."""
    with FakeKernel(tmp_path / "root", writes="eperm") as kernel:
        put_pmu(kernel, "skylake-sp")
        with pytest.raises(Unavailable, match="refuses writes"):
            open_msr(kernel.root, 100_000_000, None, events="r01d1")
        assert kernel.changed() == {}


def test_a_model_without_a_table_is_warned_of(tmp_path: Path) -> None:
    with FakeKernel(tmp_path / "root", override={"signature": [6, 0xF0, 1]}) as kernel:
        put_pmu(kernel, "skylake-sp")
        with closing(open_msr(kernel.root, 100_000_000, None, events="rc0")) as source:
            told = [m.data["text"] for m in source.poll() if hasattr(m, "data")]
        assert any("which counters can count an event is not known" in text for text in told)


def test_after_a_kill_the_next_start_gives_them_back(skylake: FakeKernel) -> None:
    before = skylake.peek(2, 0x189)
    below = ("--source", "msr", "--sysroot", str(skylake.root))
    with started("stream", *below, "-e", "r01d1:u", program="perfprobe") as probe:
        some(probe)
        assert skylake.peek(2, 0x189) == 0x4101D1
        probe.kill()
    assert skylake.changed()[2][0x189] == (before, 0x4101D1)
    with closing(open_msr(skylake.root, 100_000_000, None)):
        assert skylake.peek(2, 0x189) == before  # the new start has no event for it
    assert skylake.changed() == {}
    assert left(skylake.root) == []


def test_a_cpu_that_comes_back_counts_them_again(skylake: FakeKernel) -> None:
    with closing(open_msr(skylake.root, 100_000_000, None, events="r01d1")) as source:
        (part,) = source._programmed
        part.shut(3)
        skylake.ask("reset", cpu=3)
        assert skylake.peek(3, 0x189) == 0
        part.open(3)
        assert skylake.peek(3, 0x189) == 0x4301D1
    assert skylake.changed() == {}
