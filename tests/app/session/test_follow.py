"""The loop over a stream: its hooks, their order, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import synth

from perfprobe import wire
from perftop.model.kinds import Episode
from perftop.session.follow import Follower
from perftop.session.interval import Interval
from perftop.session.session import Session

HELLO = synth.hello([synth.REF])
MS = 1_000_000


class Log(Follower):
    """Records the calls of its hooks."""

    last_seq = -1
    """The frame after which the loop should end."""
    follows = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lines: list[str] = []

    def on_hello(self, hello: wire.Hello) -> Session | None:
        self.lines.append("hello")
        return Session(hello) if self.follows else None

    def accepts(self, message: wire.Message) -> bool:
        return not isinstance(message, wire.Note) or message.kind != "left-out"

    def on_episode_end(self, episode: Episode) -> None:
        self.lines.append(f"ended {episode.kind}")

    def on_episode_start(self, episode: Episode) -> None:
        self.lines.append(f"begun {episode.kind}")

    def on_warning(self, text: str) -> None:
        self.lines.append(text)

    def on_interval(self, interval: Interval) -> None:
        self.lines.append(f"interval {interval.elapsed_s * 1000:.0f}")

    def on_message(self, message: wire.Message) -> bool:
        if isinstance(message, wire.Frame):
            self.lines.append(f"frame {message.seq}")
            return message.seq == self.last_seq
        return False


def frames(*times_ms: float) -> Iterator[wire.Frame]:
    for seq, ms in enumerate(times_ms):
        blocks = synth.frame(HELLO, seq, {"ref": [seq, seq]}).blocks
        yield wire.Frame(seq, round(ms * MS), blocks)


@pytest.mark.parametrize(("options", "intervals", "last"), [
    ({}, [], 5),
    ({"interval_ns": 200 * MS}, [200, 200], 5),
    ({"interval_ns": 200 * MS, "starts_early": True}, [100, 200, 200], 5),
    ({"interval_ns": 200 * MS, "count": 1}, [200], 2),
    ({"duration_ns": 300 * MS}, [], 3),
    ({"interval_ns": 200 * MS, "duration_ns": 300 * MS}, [200, 100], 3),
])  # fmt: skip
def test_intervals_end_on_time(options: dict[str, Any], intervals: list[int], last: int) -> None:
    """Samples of 100 ms; every second one is 1 us early and still counts as on time."""
    log = Log(**options)
    over = log.process([HELLO, *frames(50, 149.999, 250, 349.999, 450, 549.999)])
    assert [int(x.split()[1]) for x in log.lines if x.startswith("interval")] == intervals
    assert max(int(x.split()[1]) for x in log.lines if x.startswith("frame")) == last
    assert over is (last < 5)


def test_hooks_of_a_message_are_called_in_order() -> None:
    log = Log(100 * MS)
    first, second = frames(50, 150)
    odd = [wire.Note(kind, 60 * MS, data={"text": "hot"}) for kind in ("warning", "left-out")]
    log.process([HELLO, first, *odd])
    log.process([second])
    assert log.lines == ["hello", "frame 0", "hot", "interval 100", "frame 1"]
    log.process([HELLO])
    assert (log.lines[-1], log.first_ns, log.session.frames) == ("hello", None, 0)


def test_the_last_requested_interval_ends_a_live_stream() -> None:
    async def stream() -> AsyncIterator[list[wire.Message]]:
        yield [HELLO]
        for frame in frames(50, 150, 250):
            yield [frame]
        raise AssertionError("the stream was read after its end")

    log = Log(1000 * MS)
    log.last_seq = 2
    asyncio.run(log.consume(stream()))
    assert log.lines[-2:] == ["frame 2", "interval 200"]
