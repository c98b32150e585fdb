"""The stat files of processes, whatever stands in them."""

from __future__ import annotations

import pytest
import trees
from hypothesis import given
from hypothesis import strategies as st

from perfprobe.kernel import task_files


@pytest.mark.parametrize(
    "comm",
    [b"a b", b"", b")", b") R 1 (", b"((", b"x\ny", b"1) S 2 3\n", b"\xff\xfe", "ü".encode()],
)
def test_any_name(comm: bytes) -> None:
    stat = task_files.parse(trees.process(7, 31, 5, comm, threads=3, start=99))
    name = comm.decode(errors="replace")
    assert stat == task_files.Stat(name, ticks=31, threads=3, start=99, cpu=5, parent=1)


def test_what_is_no_stat_file() -> None:
    whole = trees.process(7, 31)
    halves = (whole[:90], whole.replace(b"(", b""), whole.replace(b")", b""))
    for data in (b"", b")" * 50, b"7 (job)" + b" x" * 50, *halves):
        assert task_files.parse(data) is None


@given(comm=st.binary(max_size=64), ticks=st.integers(0, 10**12), cpu=st.integers(0, 8191))
def test_names_never_shift_numbers(comm: bytes, ticks: int, cpu: int) -> None:
    stat = task_files.parse(trees.process(4194304, ticks, cpu, comm)[: task_files.MAX_STAT_BYTES])
    assert stat is not None
    assert (stat.ticks, stat.cpu) == (ticks, cpu)


@given(st.one_of(st.binary(), st.integers(0, 250).map(lambda n: trees.process(7, 31)[:n])))
def test_garbage_is_nobody(data: bytes) -> None:
    stat = task_files.parse(data)
    assert stat is None or data.count(b" ") > 30
