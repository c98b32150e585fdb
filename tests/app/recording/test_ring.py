"""The ring of a continuous recording: the content of its directory at any time, however it ends."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import synth
from nightly import cases_by_day

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.model.kinds import Episode
from perftop.recording import ring as black_box
from perftop.recording.file import (
    BEING_WRITTEN_NOTICE,
    RecordingDirectory,
    open_recording,
    open_source,
    report_damage,
)
from perftop.recording.ring import KEPT_DIRECTORY, Ring
from perftop.session.session import Session

S = 1_000_000_000
SAMPLE = synth.SAMPLE_NS
LENGTH, PART = 60 * S, 2 * S
HELLO = synth.hello([synth.REF])
ROOM = 10**9


def ring(path: Path, room: int = ROOM) -> Ring:
    return Ring(path, HELLO, LENGTH, room)


def feed(box: Ring, since: int, until: int) -> None:
    """Records frames of these seconds."""
    for seq in range(since * S // SAMPLE, until * S // SAMPLE):
        box.write(synth.frame(HELLO, seq, {"ref": [seq, seq]}))


def times(path: Path) -> list[int]:
    with RecordingDirectory(path) as parts:
        return [message.time_ns for message in parts.messages()]


def kept_spans(path: Path) -> list[Path]:
    return sorted((path / KEPT_DIRECTORY).glob("*"))


def span(path: Path) -> tuple[float, float]:
    """Returns the seconds of the first and the last frame."""
    result = times(path)
    assert all(b - a == SAMPLE for a, b in pairwise(result)), "nothing is missing in between"
    return result[0] / S, result[-1] / S


def test_a_ring_contains_only_the_last_minute(tmp_path: Path) -> None:
    box = ring(tmp_path / "box")
    for until in (30, 61, 200):
        feed(box, {30: 0, 61: 30, 200: 61}[until], until)
        first, last = span(tmp_path / "box")
        assert last == until - SAMPLE / S
        assert first == 0 or LENGTH / S <= round(last - first, 1) + 0.1 <= (LENGTH + PART) / S
    box.end()
    assert box.extent.startswith("2000 frames, kept the last 1 min 0")
    with open_recording(tmp_path / "box") as parts:
        assert parts.damage is None
        entered = next(parts.messages(170 * S)).time_ns
        assert 170 * S - PART <= entered <= 170 * S
        assert len(list(parts.messages(170 * S))) > 0
        assert parts.offset >= parts.size, "skipped parts count as read"
        assert parts.hello.raw_ns == parts.first_ns, "30 s after the start are 30 s after this"
        session = Session(parts.hello)
        assert session.unix_s(parts.first_ns) == Session(HELLO).unix_s(parts.first_ns)


def test_manually_kept_spans_are_not_removed(tmp_path: Path) -> None:
    box = ring(tmp_path / "box")
    assert box.byte_count == 0
    feed(box, 0, 100)
    assert box.byte_count > 0, "in its newest part"
    before = span(tmp_path / "box")
    box.keep()
    feed(box, 100, 300)
    (path,) = kept_spans(tmp_path / "box")
    first, last = span(path)
    assert (first, last) == pytest.approx((before[0], 100), abs=PART / S)


def test_kept_spans_have_whole_parts_and_overlapping_ones_are_joined(tmp_path: Path) -> None:
    box = ring(tmp_path / "box")
    feed(box, 0, 90)
    for until in (100, 110, 120):
        box.keep_span("steal", 80 * S, until * S)
        box.keep_span("smi", 85 * S, (until - 5) * S)  # ends before the first one
        feed(box, until - 10, until)
    feed(box, 120, 200)
    box.keep_span("steal", 80 * S, 200 * S - SAMPLE - 1)  # the time is in the past
    (path,) = kept_spans(tmp_path / "box")
    box.keep_span("smi", 190 * S, 200 * S - SAMPLE)
    assert len(kept_spans(tmp_path / "box")) == 2
    assert path.stem.endswith("-steal")
    first, last = span(path)
    assert 80 - PART / S <= first <= 80
    assert 120 <= last + SAMPLE / S <= 120 + PART / S


def test_overlapping_spans_are_joined_up_to_twice_the_length_of_the_ring(tmp_path: Path) -> None:
    box = ring(tmp_path / "box")
    feed(box, 0, 90)
    box.keep_span("steal", 80 * S, 100 * S)
    box.keep_span("steal", 100 * S, 200 * S)
    box.keep_span("smi", 90 * S, 201 * S)  # too long, and continues only after the first one
    feed(box, 90, 201)
    box.keep_span("smi", 150 * S, 260 * S)
    feed(box, 201, 300)
    spans = {path.stem.split("-", 2)[2]: span(path) for path in kept_spans(tmp_path / "box")}
    assert spans == {
        "steal": pytest.approx((80, 200), abs=PART / S),
        "smi": pytest.approx((200, 260), abs=PART / S),
    }


def test_a_span_that_cannot_be_kept_is_reported_and_two_of_one_second_have_two_names(
    tmp_path: Path,
) -> None:
    box = ring(tmp_path / "box")
    feed(box, 0, 10)
    (tmp_path / "box" / KEPT_DIRECTORY).write_text("")
    box.keep_span("steal", 5 * S, 20 * S)
    (notice,) = box.notices
    assert notice.startswith("cannot keep it: ")
    (tmp_path / "box" / KEPT_DIRECTORY).unlink()
    for _ in range(3):
        box.keep()
    kept = [Path(notice.removeprefix("kept in ")) for notice in box.notices[1:]]
    assert [path.stem.split("-", 2)[2] for path in kept] == ["by-hand", "by-hand-2", "by-hand-3"]
    assert sorted(kept) == kept_spans(tmp_path / "box")


def test_the_size_is_limited_and_manually_kept_spans_are_removed_last(tmp_path: Path) -> None:
    path, room = tmp_path / "box", 4 * LENGTH // PART * 3200
    box = ring(path, room)
    for i in range(0, 480, 60):
        if i == 60:
            box.keep()
        elif i:
            box.keep_span("steal", i * S, (i + 50) * S)
        feed(box, i, i + 60)
        sizes = {part.stat().st_ino: part.stat().st_size for part in path.rglob("*.part")}
        assert sum(sizes.values()) < room + 10_000, "a part more at most"
        if any("--max-size" in text for text in box.notices):
            assert sum(sizes.values()) > room / 2, "no more is removed than necessary"
    assert box.frames == 480 * S // SAMPLE
    names = [one.stem.split("-", 2)[2] for one in kept_spans(path)]
    assert names[0] == "by-hand"
    assert 1 < len(names) < 7, "some of six went, and by-hand did not"
    assert any("--max-size" in text for text in box.notices)


def test_a_part_that_stays_in_the_ring_frees_no_room(tmp_path: Path) -> None:
    """The size is exceeded while all parts of the kept spans are still in the ring."""
    path, room = tmp_path / "box", 50_000
    box, excess = ring(path, room), list[int]()
    for second in range(50):
        if second in {1, 20, 25}:
            box.keep_span("steal", second * S, (second + 3) * S)
        feed(box, second, second + 1)
        sizes = {part.stat().st_ino: part.stat().st_size for part in path.rglob("*.part")}
        excess.append(sum(sizes.values()) - room)
    assert max(excess) < 5000, "two parts at most"


def test_the_next_run_keeps_the_previous_ring(tmp_path: Path) -> None:
    path = tmp_path / "box"
    box = ring(path)
    feed(box, 0, 10)
    with pytest.raises(Failed, match="in use"):
        ring(path)
    box.end()
    again = ring(path)
    feed(again, 50, 55)
    assert span(path)[0] == 50
    (left,) = kept_spans(path)
    assert left.stem.endswith("-before")
    assert span(left) == (0, 10 - SAMPLE / S)


def test_foreign_directories_are_refused(tmp_path: Path) -> None:
    """They are refused before a probe starts."""
    (tmp_path / "a").write_text("mine")
    for start in (ring, black_box.check_path):
        with pytest.raises(Failed, match="a directory of its own"):
            start(tmp_path)
        with pytest.raises(Failed, match="a directory of its own"):
            start(tmp_path / "a")
        with pytest.raises(Failed, match="is not a directory"):
            start(tmp_path / "b" / "c")
    black_box.check_path(tmp_path / "new")


@pytest.mark.parametrize("cut", cases_by_day([1, 30, 400], [30]))
def test_a_torn_end_loses_only_the_last_messages(tmp_path: Path, cut: int) -> None:
    """The end is torn as after kill -9 or a power failure."""
    path = tmp_path / "box"
    feed(ring(path), 0, 61)
    *_, last = sorted(path.glob("*.part"))
    data = last.read_bytes()
    last.unlink()  # the part still being written
    last.write_bytes(data[:-cut])
    result = times(path)
    assert 60 * S - PART <= result[-1] < 61 * S - SAMPLE
    with RecordingDirectory(path) as parts:
        assert len(list(parts.messages())) == len(result)
        assert (parts.damage or "").startswith("truncated at byte "), "after: the recording is"
        assert (parts.damage or "").endswith(f" ({last.name})")
    last.write_bytes(data[:3])  # even the hello of the part is incomplete
    assert times(path)[-1] == 60 * S - SAMPLE
    with open_source(path) as source:
        assert len(list(source.messages())) == 600
        assert (source.damage or "").startswith("not whole: ")


def test_a_growing_ring_is_not_reported_as_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "box"
    box = ring(path)
    feed(box, 0, 5)
    # the file is missing like a part that was removed after listing
    (path / "000000.part").symlink_to("gone")
    for growing in (True, False):
        with open_source(path) as source:
            assert len(list(source.messages())) == 50
        assert report_damage("box", source) == 0
        assert capsys.readouterr().err == (
            f"perftop: box: {BEING_WRITTEN_NOTICE}\n" if growing else ""
        )
        if growing:
            box.end()


def test_an_error_names_the_parts_that_remain_readable(tmp_path: Path) -> None:
    box = ring(tmp_path / "box")
    feed(box, 0, 5)
    *_, last = sorted((tmp_path / "box").glob("*.part"))
    last.unlink()
    with pytest.raises(Failed, match=r"; with 2 parts before it, .*box has the last 4.9 s$"):
        feed(box, 5, 6)
    assert not box.is_open


def test_a_part_begins_with_the_online_cpus(tmp_path: Path) -> None:
    box = ring(tmp_path / "box")
    feed(box, 0, 3)
    for cpu in (1, [1]):
        box.write(wire.Note("hotplug", 3 * S, data={"cpu": cpu, "online": False, "row": None}))
    feed(box, 3, 70)
    box.end()
    with RecordingDirectory(tmp_path / "box") as parts:
        assert [row.online for row in parts.hello.topology] == [True, False]


@pytest.mark.parametrize(("length_s", "part_s"), [
    (29, 1), (60, 2), (1800, 60), (3600, 60),
])  # fmt: skip
def test_a_ring_has_thirty_parts_or_more_of_at_most_a_minute(
    tmp_path: Path, length_s: int, part_s: int
) -> None:
    assert Ring(tmp_path / "box", HELLO, length_s * S, ROOM)._part_ns == part_s * S


def test_a_long_episode_is_kept_at_both_ends() -> None:
    long = Episode("steal", [0], 100 * S, None, 0.5, "hypervisor")
    assert [*black_box.spans_to_keep(long, 1000 * S, LENGTH)] == [("steal", 70 * S, 190 * S)]
    long.end_ns = 900 * S
    results = [*black_box.spans_to_keep(long, 1000 * S, LENGTH)]
    assert results == [("steal", 70 * S, 190 * S), ("steal", 870 * S, 930 * S)]
