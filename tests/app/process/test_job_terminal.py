"""The terminal that a command has for its own; what it prints there, kept in bounds, and as a
terminal would show it."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from perftop.process.job_terminal import (
    INTERRUPT,
    LINE_BYTES,
    MAX_BYTES,
    MAX_LINES,
    READ_BYTES,
    TURN_BYTES,
    JobTerminal,
    Printout,
)
from perftop.tui.frame.command_output import printed_line


async def test_a_command_has_its_own_terminal_with_its_size() -> None:
    with JobTerminal(["sh", "-c", "stty size; tty; echo ready; exec cat"], 99, 12) as tty:
        tty.job.go()
        printed = bytearray()
        tty.follow(printed.extend)
        await until(lambda: b"ready" in printed, "it prints")
        tty.resize(70, 5)
        tty.type(INTERRUPT)
        done = await tty.job.ended()
        assert done.status == 130
        await until(lambda: tty.closed, "nobody is left")
    size, name, *_ = bytes(printed).splitlines()
    assert size == b"12 99"
    assert name.startswith(b"/dev/pts/")


async def test_a_flood_is_followed_in_turns() -> None:
    with JobTerminal(["yes"], 80, 24) as tty:
        tty.job.go()
        sizes: list[int] = []
        tty.follow(lambda data: sizes.append(len(data)))
        turns = 0
        while sum(sizes) < 500_000:
            await asyncio.sleep(0)
            turns += 1
        tty.leave()
        tty.job.kill(9)
        await tty.job.ended()
    assert max(sizes) <= TURN_BYTES + READ_BYTES
    assert turns > 2, "others had their turn"


async def test_after_the_screen_all_that_it_prints_is_handed_on() -> None:
    ours, theirs = os.pipe()
    with JobTerminal(["seq", "5000"], 80, 24) as tty:
        tty.job.go()
        copying = asyncio.ensure_future(asyncio.to_thread(tty.copy, theirs))
        await tty.job.ended()
        tty.finish()
        await copying
    os.close(theirs)
    with os.fdopen(ours, "rb") as printed:
        assert printed.read().split() == [b"%d" % n for n in range(1, 5001)]


@pytest.mark.parametrize("script", ["sleep 60 & exit 4", "timeout --foreground 60 yes & exit 4"])
async def test_background_processes_of_the_terminal_are_not_waited_for(script: str) -> None:
    to = os.open(os.devnull, os.O_WRONLY)
    with JobTerminal(["sh", "-c", f"trap '' HUP; {script}"], 80, 24) as tty:
        try:
            tty.job.go()
            copying = asyncio.ensure_future(asyncio.to_thread(tty.copy, to))
            done = await tty.job.ended()
            tty.finish()
            await asyncio.wait_for(copying, 20)
            assert done.status == 4
        finally:
            os.killpg(tty.job.pid, 9)
    os.close(to)


def taken(*pieces: bytes) -> Printout:
    printout = Printout()
    for piece in pieces:
        printout.take(piece)
        printout.settle()
    return printout


def seen(printout: Printout) -> list[str]:
    return [printed_line(*printout[at]).text for at in range(len(printout))]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"an end without a newline", ["an end without a newline"]),
        (b"\n\nx\n", ["", "", "x"]),
        (b" 10 %\r 20 %\r100 %\n", ["100 %"]),
        (b"longer\rshort\n", ["shortr"]),
        (b"longer\r\x1b[Kshort\n", ["short"]),
        (b"abc\x1b[1Kd\n", ["   d"]),
        (b"abc\x1b[2Kd\n", ["   d"]),
        (b"abd\bc\n", ["abc"]),
        (b"\b\b\bx\n", ["x"]),
        (b"a\tb\n12345678\tc\n", ["a       b", "12345678        c"]),
        (b"\x1b[31mred\x1b[0m plain\n", ["red plain"]),
        (b"\x1b]0;a title\x07text\n", ["text"]),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", ["link"]),
        (b"\x1b[2J\x1b[H\x1b[?1049h\x1b[10;10Hx\x1b[A\x1b(B\x1b=\x1b7\n", ["x"]),
        (b"bell\x07 null\x00 del\x7f c1\xc2\x9b2J\n", ["bell null del c12J"]),
        (b"half \xe2\x82", ["half \ufffd"]),
        ("€ ✓ 漢字\n".encode(), ["€ ✓ 漢字"]),
        (b"cut \x1b[3", ["cut"]),
    ],
)
def test_lines_are_as_a_terminal_shows_them(text: bytes, shown: list[str]) -> None:
    assert [line.rstrip() for line in seen(taken(text))] == shown


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_pieces_make_no_difference_to_a_printout(text: bytes, cuts: list[int]) -> None:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(ends)]
    whole, parts = taken(text), taken(*pieces)
    assert [whole[at] for at in range(len(whole))] == [parts[at] for at in range(len(parts))]


@given(st.lists(st.sampled_from([b"\x1b", b"[", b"]", b"3", b"1", b";", b"m", b"K", b"J", b"\r",
                                 b"\b", b"\t", b"x", b"\xff", b"\xc2\x9b", b"\x07", b"\\", b"\n"]),
                max_size=40))  # fmt: skip
def test_only_visible_text_reaches_the_terminal(pieces: list[bytes]) -> None:
    printout = taken(b"".join(pieces))
    for at in range(len(printout)):
        for segment in printed_line(*printout[at]):
            assert segment.text.isprintable()
            assert segment.control is None
            style = segment.style
            assert style is None or not (style.blink or style.conceal or style.link)


def test_a_printout_is_bounded_and_counts_dropped_lines() -> None:
    printout = taken(*(b"".join(b"%d\n" % n for n in range(at, at + 1500)) for at in (0, 1500)))
    assert (len(printout), printout.left_out) == (MAX_LINES, 3000 - MAX_LINES)
    assert seen(printout)[0] == str(printout.left_out)
    assert seen(printout)[-1] == "2999"


def test_long_lines_cost_no_more_than_they_may() -> None:
    printout = taken(*(b"x" * LINE_BYTES for _ in range(4)), b"y\nshort\n")
    assert len(printout[0].raw) == LINE_BYTES
    assert seen(printout)[1] == "short"
    printout = taken(*(b"x" * 50_000 + b"\n" for _ in range(100)))
    assert sum(len(printout[at].raw) for at in range(len(printout))) <= MAX_BYTES


def test_only_the_last_state_of_progress_is_kept() -> None:
    printout = taken(*(b"\r%3d %%" % (n % 100) for n in range(5000)))
    assert seen(printout) == [" 99 %"]
    assert len(printout[0].raw) < 100


def test_the_end_of_a_flood_is_kept() -> None:
    printout = taken(b"before\n")
    for n in range(100):
        printout.take(b"".join(b"%d\n" % line for line in range(n * 10_000, (n + 1) * 10_000)))
    assert sum(len(piece) for piece in printout._new) <= 2 * MAX_BYTES
    printout.settle()
    assert seen(printout)[-1] == "999999"
    assert printout.left_out + len(printout) == 1_000_001
