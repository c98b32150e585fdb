"""`-e` with `--source msr` on a machine: what is programmed, what stays alone, and that everything
is given back."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pmu_formats
import pytest
from command import here, lines
from fakekernel.client import FakeKernel, unavailable
from fakeperf import DEVICES
from journals import left, swept
from precedence import served_first
from started import some, started

from perfprobe.native.errors import Unavailable
from perfprobe.sources.msr.source import open_msr

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "it can be mounted")

ENABLED = 0x53003C


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with swept(tmp_path / "root") as directory:
        yield directory


def put_pmu(kernel: FakeKernel, name: str) -> FakeKernel:
    """Its kernel shows the PMU as that of one of the machines does."""
    for pmu, number, _, formats, events in pmu_formats.MACHINES[name]:
        at = f"{DEVICES}/{pmu}"
        texts = {"type": str(number), **{f"format/{term}": bits for term, bits in formats.items()}}
        texts |= {f"events/{event}": terms for event, terms in events.items()}
        for path, text in texts.items():
            kernel.ask("file", path=f"{at}/{path}", text=f"{text}\n")
    return kernel


def stat(kernel: FakeKernel, events: str, *more: str) -> subprocess.CompletedProcess[str]:
    below = ("--source", "msr", "--sysroot", str(kernel.root))
    return here("stat", "--json", "-i", "400ms", *below, "-e", events, *more)


def test_it_counts_what_was_chosen_and_gives_all_back(tmp_path: Path) -> None:
    """Events whose sum is known: the fake kernel counts no others. The registers are read one after
    the other, so single values differ."""
    with served_first(), FakeKernel(tmp_path / "root", model="ice-lake-sp") as kernel:
        done = stat(put_pmu(kernel, "ice-lake-sp"), "{rc0,rc0:u},r3c:k,r0728,r14a3", "-n", "5")
        assert done.returncode == 0, done.stderr
        assert kernel.changed() == {}
        selects = {w["reg"]: w["value"] for w in kernel.writes() if w["value"] and w["reg"] < 0x190}
    assert set(selects.values()) == {
        0x4300C0, 0x4100C0, 0x42003C, 0x430728, 0x4314A3, 0x43023C, 0x4200C0,
    }  # fmt: skip
    assert len(selects) == 8
    assert next(n for n, value in selects.items() if value == 0x430728) < 0x18A
    (hello,) = lines(done.stdout, "hello")
    assert hello["source"] == "msr"
    counts: Counter[str] = Counter()
    for line in lines(done.stdout, "interval"):
        for row in line["cpus"]:
            counts.update({key: count or 0 for key, count in row["counts"].items()})
    assert counts["e.r14a3"] == 0
    if not counts["kernel_cycles"]:
        pytest.skip("the machine is too busy: no read was whole")
    user = counts["instructions"] - counts["kernel_instructions"]
    assert counts["e.rc0"] == pytest.approx(counts["instructions"], rel=0.1)
    assert counts["e.rc0:u"] == pytest.approx(user, rel=0.1)
    assert counts["e.r3c:k"] == pytest.approx(counts["kernel_cycles"], rel=0.1)


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with FakeKernel(tmp_path / "root") as kernel:
        put_pmu(kernel, "skylake-sp")
        with pytest.raises(Unavailable, match="-e r02d1: no counter is left for it"):
            open_msr(kernel.root, 100_000_000, None, events="r01d1,r02d1")
        assert kernel.writes() == []


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


def test_after_a_kill_the_next_start_gives_them_back(tmp_path: Path) -> None:
    with FakeKernel(tmp_path / "root") as kernel:
        put_pmu(kernel, "skylake-sp")
        before = kernel.peek(2, 0x189)
        below = ("--source", "msr", "--sysroot", str(kernel.root))
        with started("stream", *below, "-e", "r01d1:u", program="perfprobe") as probe:
            some(probe)
            assert kernel.peek(2, 0x189) == 0x4101D1
            probe.kill()
        assert kernel.changed()[2][0x189] == (before, 0x4101D1)
        with closing(open_msr(kernel.root, 100_000_000, None)):
            assert kernel.peek(2, 0x189) == before  # the new start has no event for it
        assert kernel.changed() == {}
        assert left(kernel.root) == []


def test_a_cpu_that_comes_back_counts_them_again(tmp_path: Path) -> None:
    with FakeKernel(tmp_path / "root") as kernel:
        put_pmu(kernel, "skylake-sp")
        with closing(open_msr(kernel.root, 100_000_000, None, events="r01d1")) as source:
            (part,) = source._programmed
            part.shut(3)
            kernel.ask("reset", cpu=3)
            assert kernel.peek(3, 0x189) == 0
            part.open(3)
            assert kernel.peek(3, 0x189) == 0x4301D1
        assert kernel.changed() == {}
