"""Which rounds the main thread wakes for. It takes all rounds since the last one at once, so it
wakes as often as its reader wants numbers, not as often as samples are taken.

perftop asks for `most`, too. It is outside the wire because that loads msgpack, for which the
start of a probe does not wait."""

from __future__ import annotations

LONGEST_NS = 1_000_000_000
"""Upper bound of a batch: what is not written yet is lost if the probe is killed."""
MOST_FRAMES = 256
"""Upper bound of frames in a batch. With samples of 1 ms that is four wake-ups a second."""
MOST_BYTES = 4 << 20
"""Upper bound of a batch's frames: half of what may wait for a slow reader (outbox.QUEUE_BYTES)."""
EARLY = 2
"""Rounds at the start that are batches of their own: two make the first numbers."""


def whole(span_ns: int, sample_ns: int) -> int:
    """Samples in a span. Both lengths may have been rounded, so a whole multiple may seem to be a
    bit less."""
    return int(span_ns / sample_ns + 0.01)


def most(sample_ns: int) -> int:
    """Frames in the longest batch."""
    return max(1, min(whole(LONGEST_NS, sample_ns), MOST_FRAMES))


class Batches:
    """Rounds are numbered from 0. `frame_bytes` is the size of a frame."""

    def __init__(self, period_ns: int, frame_bytes: int) -> None:
        self._period_ns = period_ns
        self.most = max(1, min(most(period_ns), MOST_BYTES // frame_bytes))
        """Rounds in the longest batch; the rings of the lanes must hold several."""
        self._rounds = 1
        self._early = EARLY
        self._last = self._begin = -1
        """The round that was taken last, and the one from which batches are counted; -1: none was
        taken."""

    def pace(self, batch_ns: int) -> None:
        """Batches are this long, or as long as is possible, counted from the last round that was
        taken."""
        self._rounds = max(1, min(whole(batch_ns, self._period_ns), self.most))
        self._begin = self._last

    @property
    def at_once(self) -> int:
        """Upper bound of rounds that are taken together, also if more are waiting."""
        return 1 if self._early else self._rounds

    def end(self, first: int) -> int:
        """The round to wake for if `first` is the next to be taken."""
        if self._early:
            return first
        return first + (self._begin - first) % self._rounds

    def took(self, last: int) -> None:
        """All rounds up to this one have been taken."""
        self._last = last
        if self._early:
            self._early -= 1
        if self._begin < 0:
            self._begin = last
