"""Decides after which rounds (samples of all CPUs) the main thread wakes. It then drains all rounds
since its last wake-up, a batch. So it wakes as often as its reader wants numbers, not once a
sample.

perftop calls `max_frames`, too. This module is outside the wire package, because its import of
msgpack would delay the start of perfprobe.
"""

from __future__ import annotations

MAX_BATCH_NS = 1_000_000_000
"""Maximum length of a batch in ns; a killed perfprobe loses the frames not yet written."""
MAX_BATCH_FRAMES = 256
"""Maximum number of frames in a batch: four batches a second, if samples are taken every 1 ms."""
MAX_BATCH_BYTES = 4 << 20
"""Maximum size in bytes of a batch: half of the queue for a slow reader (outbox.QUEUE_BYTES)."""
SINGLE_ROUND_BATCHES = 2
"""Number of single-round batches at the start, because the user's first numbers need two rounds."""


def sample_count(span_ns: int, sample_ns: int) -> int:
    """Returns the number of whole samples in a span. Both lengths may have been rounded, so a span
    that is slightly shorter than a multiple counts as that multiple."""
    return int(span_ns / sample_ns + 0.01)


def max_frames(sample_ns: int) -> int:
    """Returns the maximum number of frames in a batch if samples are `sample_ns` apart."""
    return max(1, min(sample_count(MAX_BATCH_NS, sample_ns), MAX_BATCH_FRAMES))


class BatchSchedule:
    """Decides at which rounds batches end. Rounds are numbered from 0 and `period_ns` apart;
    `frame_bytes` is the size of a frame."""

    def __init__(self, period_ns: int, frame_bytes: int) -> None:
        self._period_ns = period_ns
        self.max_rounds = max(1, min(max_frames(period_ns), MAX_BATCH_BYTES // frame_bytes))
        """Number of rounds in the longest possible batch."""
        self._rounds = 1
        self._single_rounds_left = SINGLE_ROUND_BATCHES
        self._last_drained = self._counted_from = -1
        """Last drained round, and the round before the first batch; -1 before round 0."""

    def set_batch_length(self, batch_ns: int) -> None:
        """Sets the length of the batches that follow, to at most `max_rounds`."""
        self._rounds = max(1, min(sample_count(batch_ns, self._period_ns), self.max_rounds))
        self._counted_from = self._last_drained

    @property
    def max_drained_rounds(self) -> int:
        """Maximum number of rounds that are drained together, even if more are ready."""
        return 1 if self._single_rounds_left else self._rounds

    def last_round(self, first_round: int) -> int:
        """Returns the last round of the batch that begins with round `first_round`."""
        if self._single_rounds_left:
            return first_round
        return first_round + (self._counted_from - first_round) % self._rounds

    def mark_drained(self, last_round: int) -> None:
        self._last_drained = last_round
        if self._single_rounds_left:
            self._single_rounds_left -= 1
        if self._counted_from < 0:
            self._counted_from = last_round
