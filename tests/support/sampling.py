"""Computes samples from frames."""

from __future__ import annotations

from collections.abc import Sequence

from perfprobe import wire
from perftop.model.sample_reader import Sample, SampleReader


def samples(
    reader: SampleReader, frames: Sequence[wire.Frame], *, learn: bool = False
) -> list[Sample]:
    """The samples of frames, computed together; the first frame of a stream has none."""
    batches = [*reader.batches(frames, learn=learn)]
    return [Sample(batch, i) for batch in batches for i in range(len(batch))]
