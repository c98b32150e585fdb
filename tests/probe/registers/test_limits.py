"""Limits of the clock, from the registers of a fake kernel through the real sampler."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import frame_rows
import numpy as np
import pytest
from attempts import up_to_three_attempts
from capabilities import needs_fuse
from fakekernel.client import FakeKernel
from fakekernel.scenes import PowerLimitDrop
from frame_rows import find_counter, is_whole
from priority import raised_priority
from waiting import whenever_due

from perfprobe import wire
from perfprobe.programming.source import MsrSource, open_msr
from perfprobe.wire import Frame, Hello, Turbo
from perftop.model.kinds import Episode
from perftop.session.session import Session

pytestmark = [needs_fuse, pytest.mark.usefixtures("run_dir")]

SAMPLE_NS = 50_000_000
EDGE_NS = 20_000_000
"""Time before a change in which the sampler may have repeated a read."""


# --- reading frames -------------------------------------------------------------------------------


def frames(source: MsrSource, n: int, session: Session | None = None) -> list[Frame]:
    """The next `n` frames from the wire, except those in which a CPU was late because the machine
    is busy. The session gets the same frames and all other messages."""
    decoder = wire.Decoder()
    list(decoder.feed(wire.encode(source.hello)))
    results: list[Frame] = []
    for messages in whenever_due(source.due_s, source.poll, f"{n} whole frames", 100):
        for message in messages:
            for decoded in decoder.feed(wire.encode(message)):
                if isinstance(decoded, Frame):
                    if not is_whole(source.hello, decoded):
                        continue
                    results.append(decoded)
                if session is not None:
                    session.apply(decoded)
        if len(results) >= n:
            break
    return results


def columns(hello: Hello, frame: Frame, key: str) -> np.ndarray:
    """Returns the columns of each row; -1 where not valid."""
    values = frame_rows.raw_values(hello, frame.blocks, key).astype(np.int64)
    return np.where(frame_rows.valid_mask(hello, frame.blocks, key), values, -1)


def value(hello: Hello, frame: Frame, key: str) -> list[float]:
    """The value of a gauge, by row."""
    scale = find_counter(hello, key)[2].scale
    return [raw * scale for raw in columns(hello, frame, key)[:, 0].tolist()]


EITHER = "PL1 or multi-core turbo"
"""Bit 10 of a Xeon's limit reasons."""


def table_of(hello: Hello) -> Turbo:
    """The turbo table of the registers, not that of the kernel."""
    (table,) = (table for table in hello.turbo if table.origin.startswith("MSR"))
    return table


def stamps_ns(hello: Hello, frame: Frame, block: str) -> np.ndarray:
    """Times before and after each row was read, by CLOCK_MONOTONIC_RAW like the fake's time."""
    assert hello.stamp == "raw"
    result: np.ndarray = frame_rows.head(frame.blocks[block])[:, :2]
    return result


# --- a power-limit drop ---------------------------------------------------------------------------


class WatchedPackage:
    """One package of a machine whose power limit lowers its clock, as reported by frames."""

    def __init__(
        self, scene: PowerLimitDrop, package: int, session: Session, report: list[Frame]
    ) -> None:
        self.scene, self.package, self.session = scene, package, session
        self.hello = session.hello
        self.pairs = [(a, b) for a, b in itertools.pairwise(report) if b.seq == a.seq + 1]

    def is_limited(self, frame: Frame, block: str, row: int) -> bool | None:
        """Whether it was limited when the row was read; None: close to a change."""
        before, after = stamps_ns(self.hello, frame, block)[row].tolist()
        results = {self.scene.is_limited(t / 1e9) for t in (before - EDGE_NS, after)}
        return results.pop() if len(results) == 1 else None

    def polls(self, key: str, part: str) -> dict[bool, list[tuple[int, int, int]]]:
        """Number of polls, polls with the bit, and polls with another bit, by interval."""
        position = find_counter(self.hello, key)[2].parts.index(part)
        results: dict[bool, list[tuple[int, int, int]]] = {False: [], True: []}
        for a, b in self.pairs:
            limited = self.is_limited(b, "package", self.package)
            changes = (columns(self.hello, b, key) - columns(self.hello, a, key))[self.package]
            polls, *seen = changes.tolist()
            with_part = seen.pop(position)
            if limited is not None:
                results[limited].append((polls, with_part, sum(seen)))
        return results

    def busy_hz(self, cpu: int) -> dict[bool, list[float]]:
        assert self.hello.tsc_hz is not None
        results: dict[bool, list[float]] = {False: [], True: []}
        for a, b in self.pairs:
            both = {self.is_limited(frame, "cpu", cpu) for frame in (a, b)}
            cycles, ref = (
                (columns(self.hello, b, key) - columns(self.hello, a, key))[cpu, 0].item()
                for key in ("cycles", "ref")
            )
            if len(both) == 1 and (limited := both.pop()) is not None:
                results[limited].append(cycles / ref * self.hello.tsc_hz.hz)
        return results


def watch(root: Path) -> list[WatchedPackage]:
    """Watches both simulated packages for one and a half periods of the power limit."""
    scene = PowerLimitDrop()
    with (
        raised_priority(),
        pytest.MonkeyPatch.context() as patch,
        FakeKernel(root / "root", **scene.spec()) as kernel,
    ):
        patch.setenv("XDG_RUNTIME_DIR", str(root))
        source = open_msr(kernel.root, SAMPLE_NS, None)
        try:
            session = Session(source.hello)
            report = frames(source, round(1.5 * scene.period_s * 1e9 / SAMPLE_NS), session)
        finally:
            source.close()
        assert kernel.changed() == {}
    return [WatchedPackage(scene, package, session, report) for package in (0, 1)]


@pytest.fixture(scope="module")
def watched_packages(tmp_path_factory: pytest.TempPathFactory) -> list[WatchedPackage]:
    return watch(tmp_path_factory.mktemp("drop"))


@pytest.fixture
def watch_attempts(
    watched_packages: list[WatchedPackage], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[WatchedPackage]]:
    """Yields the packages as watched for all tests, then as watched in each further attempt: a fake
    register is read through another process, which a busy machine may delay."""
    later = (watch(tmp_path_factory.mktemp("drop")) for _ in itertools.count())
    return itertools.chain([watched_packages], later)


def test_the_table_is_in_hello(watched_packages: list[WatchedPackage]) -> None:
    table = table_of(watched_packages[0].hello)
    steps = [(step.cores, step.hz) for step in table.steps[:3]]
    assert steps == [(2, 3.7e9), (4, 3.5e9), (8, 3.4e9)]
    assert table.origin == "MSR 1ADH, licence 0"


@up_to_three_attempts
def test_the_reason_is_polled_only_while_the_clock_is_lower(
    watch_attempts: Iterator[list[WatchedPackage]],
) -> None:
    first, _ = next(watch_attempts)
    for key, part in (("limit_reasons", EITHER), ("package_thermal", "power limit")):
        polls = first.polls(key, part)
        assert len(polls[True]) >= 5
        assert all(seen == n >= 1 and others == 0 for n, seen, others in polls[True])
        assert len(polls[False]) >= 5
        assert all(seen == others == 0 < n for n, seen, others in polls[False])
    table = table_of(first.hello)
    ceiling_hz = next(step.hz for step in table.steps if step.cores >= 3)
    for cpu in first.scene.cpus[0]:
        clock = first.busy_hz(cpu)
        assert np.median(clock[False]) == pytest.approx(ceiling_hz, rel=5e-3)
        assert np.median(clock[True]) == pytest.approx(2.9e9, rel=5e-3)


@up_to_three_attempts
def test_throttled_time_is_the_length_of_the_drop(
    watch_attempts: Iterator[list[WatchedPackage]],
) -> None:
    first, _ = next(watch_attempts)
    # Lost samples do not affect the difference of a counter.
    (start, _), (_, end) = first.pairs[0], first.pairs[-1]
    scale = find_counter(first.hello, "power_throttled_s")[2].scale
    totals = [columns(first.hello, frame, "power_throttled_s")[:, 0] for frame in (start, end)]
    reported_s = ((totals[1] - totals[0]) * scale).tolist()
    begin_ns, end_ns = (stamps_ns(first.hello, f, "package")[0, 0].item() for f in (start, end))
    truly_s = np.mean([first.scene.is_limited(t / 1e9) for t in range(begin_ns, end_ns, 1_000_000)])
    assert reported_s[0] == pytest.approx(truly_s * (end_ns - begin_ns) / 1e9, abs=0.02)
    assert reported_s[1] == 0


@up_to_three_attempts
def test_a_drop_is_an_episode_of_its_package_alone(
    watch_attempts: Iterator[list[WatchedPackage]],
) -> None:
    first, _ = next(watch_attempts)
    scene, session = first.scene, first.session
    assert set(session.take_interval().ceilings.hz.round(-8).tolist()) == {scene.fast_hz}
    results = [*session.ended, *session.detector.running]
    drops = [episode for episode in results if episode.kind == "turbo-drop"]

    def length_ns(drop: Episode) -> int:
        return (drop.end_ns or session.now_ns) - drop.start_ns

    # Up to two samples may be wrong: a fake register is read through another process.
    lasting = [drop for drop in drops if length_ns(drop) > 6 * SAMPLE_NS]
    assert {cpu for drop in lasting for cpu in drop.cpus} == {*scene.cpus[0]}
    # Drops are joined to one episode if no complete frame lies between them; a full drop takes 1 s.
    drop = min(lasting, key=lambda episode: abs(length_ns(episode) - scene.slow_s * 1e9))
    # inferred, because the power is far below the limit of 150 W
    assert (drop.cause, drop.confidence) == ("power-pl1", "inferred")
    assert drop.depth == pytest.approx(scene.fast_hz - scene.slow_hz, rel=0.1)
    bit, *_ = drop.evidence["limit_reasons"].bits
    assert (bit.number, bit.name) == (10, EITHER)
    assert drop.evidence["package_thermal"].bits[0].name == "power limit"


# --- each register --------------------------------------------------------------------------------


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[FakeKernel]:
    with raised_priority(), FakeKernel(tmp_path / "root") as fake:
        yield fake


@pytest.fixture
def source(kernel: FakeKernel) -> Iterator[MsrSource]:
    opened = open_msr(kernel.root, SAMPLE_NS, None)
    yield opened
    opened.close()


def test_registers_of_an_8160_have_their_values_in_units(
    kernel: FakeKernel, source: MsrSource
) -> None:
    frame = frames(source, 2)[-1]
    results = {
        "temperature_c": 38,  # 57 degrees below 95 °C
        "power_limit_w": 150,
        "power_limit2_w": 180,
        "turbo_disabled": 0,
        "modulation": 0,
        "hwp_epp": 0x80,
        "hwp_max": 37,
        "hwp_highest": 37,
    }
    assert {key: set(value(source.hello, frame, key)) for key in results} == {
        key: {number} for key, number in results.items()
    }
    parts = {
        key: find_counter(source.hello, key)[2].parts for key in ("core_thermal", "package_thermal")
    }
    assert parts == {
        "core_thermal": [
            *("thermal", "PROCHOT", "critical temperature"),
            *("power limit", "current limit", "cross-domain limit"),
        ],
        "package_thermal": ["thermal", "PROCHOT", "critical temperature", "power limit"],
    }


def test_changed_registers_are_reported(kernel: FakeKernel, source: MsrSource) -> None:
    for cpu in range(4):
        kernel.poke(cpu, 0x1A0, 1 << 38)
        kernel.poke(cpu, 0x610, 100 * 8 | 1 << 15 | 180 * 8 << 32)
        kernel.poke(cpu, 0x1B1, 0x88050000)  # 5 °C below the limit
        kernel.poke(cpu, 0x19A, 0x1A)
    hello = source.hello
    for _again in range(20):  # registers that seldom change are read in turn
        frame = frames(source, 3)[-1]
        if value(hello, frame, "modulation") == [0x1A] * 4:
            break
    assert value(hello, frame, "turbo_disabled") == [1]
    assert value(hello, frame, "power_limit_w") == [100]
    assert columns(hello, frame, "power_limit2_w").tolist() == [[-1]]  # the limit is switched off
    assert value(hello, frame, "temperature_c") == [90]
    assert value(hello, frame, "modulation") == [0x1A] * 4


def test_a_lower_tdp_level_has_its_own_base_clock(kernel: FakeKernel) -> None:
    for cpu in range(4):
        kernel.poke(cpu, 0x64B, 1 << 31 | 2)  # the register is locked
        kernel.poke(cpu, 0x649, 19 << 16)
        kernel.poke(cpu, 0x64A, 16 << 16 | 105 * 8)
    opened = open_msr(kernel.root, SAMPLE_NS, None)
    try:
        assert value(opened.hello, frames(opened, 2)[-1], "tdp_base_hz") == [1.6e9]
    finally:
        opened.close()


def test_thermal_bits_are_counted_once_per_core(kernel: FakeKernel, source: MsrSource) -> None:
    """Sticky bits (those with odd numbers) and thresholds are not counted; a core's two threads
    read one register."""
    kernel.poke(0, 0x19C, 0x88390000 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 14)
    kernel.poke(2, 0x19C, kernel.peek(0, 0x19C))
    frames(source, 3)
    a, b = frames(source, 2)[-2:]
    changes = columns(source.hello, b, "core_thermal") - columns(source.hello, a, "core_thermal")
    assert changes.min() >= 0
    n, m = changes[:, 0].tolist()
    assert changes.tolist() == [[n, 0, n, 0, 0, 0, n], [m, 0, 0, 0, 0, 0, 0]]
    assert min(n, m) >= 1


def test_the_next_cpu_continues_polling(kernel: FakeKernel, source: MsrSource) -> None:
    for cpu in (1, 2, 3):
        kernel.poke(cpu, 0x64F, 1 << 10)
    frames(source, 2)
    kernel.ask("online", cpu=0, online=False)
    *_, a, b = frames(source, 8)
    changes = columns(source.hello, b, "limit_reasons") - columns(source.hello, a, "limit_reasons")
    assert changes[0, 0] >= 1
    assert changes[0, 1 + 10] == changes[0, 0]
    kernel.ask("online", cpu=0, online=True)  # so that its registers can be restored


# --- missing registers ----------------------------------------------------------------------------


def reasons(root: Path, **spec: object) -> tuple[Hello, dict[str, str]]:
    with FakeKernel(root, **spec) as kernel:
        source = open_msr(kernel.root, SAMPLE_NS, None)
        source.close()
    return source.hello, {missing.what: missing.why for missing in source.hello.missing}


def test_a_missing_register_has_its_reason(tmp_path: Path) -> None:
    hello, why = reasons(tmp_path / "root", missing=[0x64F, 0x606, 0x1A2, 0x770, 0x1AD])
    keys = {c.key for block in hello.blocks for c in block.counters}
    gone = {"limit_reasons", "power_limit_w", "power_throttled_s", "temperature_c", "hwp_epp"}
    assert not keys & gone
    assert not any("MSR" in table.origin for table in hello.turbo)
    assert "package_thermal" in keys
    assert "does not have the register" in why["limit_reasons"]
    assert "MSR 606H" in why["power_limit_w"]
    assert why["temperature_c"] == "MSR 1A2H has no TjMax"
    assert "MSR 770H" in why["hwp_epp"]
    assert why["turbo"] == "MSR 1ADH cannot be read"


def test_a_limit_disabled_at_the_start_has_a_reason(tmp_path: Path) -> None:
    registers = [[cpu, 0x610, 150 * 8 | 1 << 15] for cpu in range(4)]
    hello, why = reasons(tmp_path / "root", registers=registers)
    assert find_counter(hello, "power_limit_w")[2].scale == 1 / 8
    assert why["power_limit2_w"] == "it is off (MSR 610H bit 47)"


def test_amd_has_energy_and_no_reasons(tmp_path: Path) -> None:
    hello, why = reasons(tmp_path / "root", model="zen3")
    energy = find_counter(hello, "energy_j")[2]
    assert (energy.scale, energy.bits, energy.origin) == (2.0**-14, 32, "MSR C001029BH")
    assert why["limit_reasons"] == "no register is known for it (Zen 3)"
    assert why["turbo"] == "no register is known for it (Zen 3)"
    assert not any("MSR" in table.origin for table in hello.turbo)


def test_haswell_ep_has_reasons_at_another_address_and_no_hwp(tmp_path: Path) -> None:
    hello, why = reasons(tmp_path / "root", model="haswell-ep")
    limits = find_counter(hello, "limit_reasons")[2]
    assert (limits.origin, limits.columns) == ("MSR 690H", 17)
    assert limits.parts[7:11] == ["bit 7", "electrical", "bit 9", "multi-core turbo"]
    assert why["hwp_epp"] == why["hwp_max"] == "CPUID does not report HWP"
    assert len(find_counter(hello, "core_thermal")[2].parts) == 4
