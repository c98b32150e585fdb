"""How many samples a probe should write at once, for a reader that shows spans of time."""

from __future__ import annotations

import math

from perfprobe.native.batches import most


def longest(sample_ns: int, *spans_ns: int | None) -> int:
    """Length in ns of the longest batch that divides these spans, which are whole samples. A span
    that ended inside a batch would be told late."""
    samples = math.gcd(*(round(span_ns / sample_ns) for span_ns in spans_ns if span_ns))
    return sample_ns * max(n for n in range(1, most(sample_ns) + 1) if samples % n == 0)
