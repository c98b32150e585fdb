"""How many frames a probe writes at once at the most, for the probe and for who asks it."""

from __future__ import annotations

LONGEST_NS = 1_000_000_000
"""Upper bound of a batch: what is not written yet is lost if the probe is killed."""
MOST_FRAMES = 256
"""Upper bound of frames in a batch. With samples of 1 ms that is four wake-ups a second."""


def whole(span_ns: int, sample_ns: int) -> int:
    """Samples in a span. Both lengths may have been rounded, so a whole multiple may seem to be a
    bit less."""
    return int(span_ns / sample_ns + 0.01)


def most(sample_ns: int) -> int:
    """Frames in the longest batch."""
    return max(1, min(whole(LONGEST_NS, sample_ns), MOST_FRAMES))
