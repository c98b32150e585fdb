"""Orders on stdin: they may arrive in pieces, and all other input is ignored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfprobe import serve
from perfprobe.serve import OrderParser

NONE = (None, None)


@given(cuts=st.lists(st.integers(0, 40), max_size=5))
def test_an_order_may_arrive_in_pieces(cuts: list[int]) -> None:
    text = b"noise\nbatch 500000000\necho 3\nbatch 7\nbat"
    reader, result, at = OrderParser(), [], 0
    for cut in [*sorted(cuts), len(text)]:
        result.append(reader.parse(text[at:cut]))
        at = max(at, cut)
    assert [each.batch_ns for each in result if each.batch_ns][-1] == 7
    assert [each.echo for each in result if each.echo] == [3]
    assert reader.parse(b"ch 9\n") == (9, None)


@pytest.mark.parametrize("line", [
    *(b"batch", b"batch ", b"batch 0", b"batch -5", b"batch +5", b"batch 5 ", b"batch  5"),
    *(b" batch 5", b"batch 5\r", b"batch 5.0", b"batch 1e9", b"batch 0x5", b"batch \xd9\xa5"),
    *(b"Batch 5", b"batch\t5", b"batch 1234567890123", b"batch 5" + b"0" * 5000),
    *(b"x" * 5000 + b"batch 5", b"\0batch 5"),
    *(b"echo", b"echo ", b"echo 0", b"echo -1", b"echo x", b"echo 1234567890123"),
])  # fmt: skip
def test_malformed_orders_are_ignored(line: bytes) -> None:
    assert OrderParser().parse(line + b"\n") == NONE
    reader = OrderParser()
    assert [reader.parse(bytes([byte])) for byte in line + b"\n"] == [NONE] * (len(line) + 1)
    assert reader.parse(b"batch 5\necho 6\n") == (5, 6), "and the next lines count"


@given(noise=st.lists(st.binary(max_size=100), max_size=20))
def test_hostile_bytes_change_nothing(noise: list[bytes]) -> None:
    reader = OrderParser()
    for piece in noise:
        content = reader.parse(piece)
        assert content == NONE or b"batch " in b"".join(noise) or b"echo " in b"".join(noise)
        assert len(reader._line) <= serve.MAX_ORDER_BYTES + 1
    assert reader.parse(b"\nbatch 12\n") == (12, None)
