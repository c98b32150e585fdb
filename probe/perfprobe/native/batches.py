"""Decides which rounds the main thread wakes for. It drains all rounds since its last wake-up at
once, so it wakes as often as its reader wants numbers, not as often as samples are taken.

perftop calls `max_frames`, too. This module is outside the wire package because that package loads
msgpack, which would delay the start of a probe."""

from __future__ import annotations

MAX_BATCH_NS = 1_000_000_000
"""Upper bound of a batch in time: frames that are not written yet are lost if the probe is
killed."""
MAX_BATCH_FRAMES = 256
"""Maximum number of frames in a batch; with samples of 1 ms it makes four wake-ups a second."""
MAX_BATCH_BYTES = 4 << 20
"""Maximum size in bytes of a batch: half of the queue for a slow reader (outbox.QUEUE_BYTES)."""
EARLY_BATCHES = 2
"""Number of rounds at the start that are batches of their own: two rounds give the first
numbers."""


def sample_count(span_ns: int, sample_ns: int) -> int:
    """Returns the number of samples in a span. Both lengths may have been rounded, so a span that
    is slightly shorter than a whole multiple counts as whole."""
    return int(span_ns / sample_ns + 0.01)


def max_frames(sample_ns: int) -> int:
    """Returns the maximum number of frames in a batch with this sample time."""
    return max(1, min(sample_count(MAX_BATCH_NS, sample_ns), MAX_BATCH_FRAMES))


class Batches:
    """Decides at which rounds batches end. Rounds are numbered from 0. `frame_bytes` is the size of
    a frame."""

    def __init__(self, period_ns: int, frame_bytes: int) -> None:
        self._period_ns = period_ns
        self.max_rounds = max(1, min(max_frames(period_ns), MAX_BATCH_BYTES // frame_bytes))
        """Rounds in the longest batch; the rings of the lanes must hold several."""
        self._rounds = 1
        self._early = EARLY_BATCHES
        self._last = self._begin = -1
        """The last round that was taken, and the round from which batches are counted; -1 before
        the first round."""

    def pace(self, batch_ns: int) -> None:
        """Sets the length of batches, at most the longest possible, counted from the last round
        that was taken."""
        self._rounds = max(1, min(sample_count(batch_ns, self._period_ns), self.max_rounds))
        self._begin = self._last

    @property
    def max_taken(self) -> int:
        """Maximum number of rounds that are taken together, even if more rounds are waiting."""
        return 1 if self._early else self._rounds

    def end(self, first: int) -> int:
        """Returns the round to wake for if `first` is the next to be taken."""
        if self._early:
            return first
        return first + (self._begin - first) % self._rounds

    def mark_taken(self, last: int) -> None:
        """Records that all rounds up to `last` have been taken."""
        self._last = last
        if self._early:
            self._early -= 1
        if self._begin < 0:
            self._begin = last
