"""Each sample of this machine has the values from /proc/stat, not only the last of a batch."""

from __future__ import annotations

from pathlib import Path

import command
import frame_rows
import numpy as np
import pytest
from attempts import up_to_three_attempts
from nightly import cases_by_day
from sessions import one_by_one

from perfprobe import wire
from perftop.recording.file import Recording
from perftop.session.session import Session

KEYS = ("util", "steal", "user")
START_NS = 500_000_000
"""The first reads have cold caches, and after some ms samples have no numbers yet."""


def undisturbed(hello: wire.Hello, frame: wire.Frame) -> bool:
    """Whether no row was read late or interrupted, which a busy machine causes."""
    flags = memoryview(frame.blocks["cpu"].head).cast("Q")[4 :: wire.HEAD]
    return frame_rows.is_whole(hello, frame) and not any(each & wire.ROW_WIDE for each in flags)


@pytest.mark.parametrize("sample", cases_by_day(["20ms", "50ms"], ["20ms"]))
@up_to_three_attempts
def test_a_recording_has_proc_stat_in_each_sample(sample: str, tmp_path: Path) -> None:
    path = tmp_path / "tape.perftop"
    done = command.run("record", "--force", "-o", str(path), "--source", "os", "--sample", sample,
                       "--duration", "2s")  # fmt: skip
    assert done.returncode == 0, done.stderr
    checked = inside = 0
    before = False
    with Recording(path) as recording:
        session = Session(recording.hello)
        on = [i for i, row in enumerate(recording.hello.topology) if row.online]
        messages = list(recording.messages())
    for frame in one_by_one(session, messages):
        values = session.take_interval().values
        if not isinstance(frame, wire.Frame) or frame.time_ns < messages[0].time_ns + START_NS:
            continue
        good = undisturbed(session.hello, frame)
        if good and before:
            missing = [key for key in KEYS if np.isnan(values[key][on]).any()]
            assert not missing, frame.seq
            checked += 1
            inside += "machine" not in frame.blocks
        before = good
    assert checked > 8
    assert inside > checked / 3, "the probe wrote in batches"


@up_to_three_attempts
def test_intervals_of_whole_batches_match() -> None:
    found = command.stat("--source", "os", "-i", "1s", "--sample", "100ms", "--duration", "2s")
    rows = [row for line in found if line["type"] == "interval" for row in line["cpus"]]

    assert all(row[key] is not None for row in rows if row["online"] for key in KEYS)
