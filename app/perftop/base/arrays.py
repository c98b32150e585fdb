"""Types of numpy arrays. numpy.typing is not used, because importing it takes longer than importing
a view of the screen."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Singles = np.ndarray[Any, np.dtype[np.float32]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Codes = np.ndarray[Any, np.dtype[np.uint8]]


def any_by_sample(mask: Bools) -> Bools:
    """Returns, for each sample (the first of two axes), whether any element is true."""
    return np.asarray(np.logical_or.reduce(mask, axis=-1))


def first_true(mask: Bools, first: int = 0, last: int | None = None) -> int:
    """Returns the index of the first sample from `first` on with a true element; `last`, or the
    number of samples, if there is none before it. Samples are along the first axis."""
    part = mask[first:last]
    if part.ndim > 1:
        part = np.logical_or.reduce(part, axis=tuple(range(1, part.ndim)))
    index = int(part.argmax()) if len(part) else 0
    return first + (index if len(part) and part[index] else len(part))


def latest_known(before: np.ndarray, values: np.ndarray, known: Bools) -> np.ndarray:
    """Returns the latest known values before the first sample and after each sample, (1 + samples,
    rows). `before`: those before the first sample."""
    if np.count_nonzero(known) == known.size:  # the usual case
        return np.concatenate([before[None], values])
    if len(values) == 1:  # as on a live screen: a third of the time
        return np.array([before, np.where(known[0], values[0], before)])
    samples = np.arange(1, len(values) + 1)[:, None]
    source = np.maximum.accumulate(np.where(known, samples, 0))
    every = np.concatenate([before[None], values])
    columns = np.arange(len(before))  # take() needs half of the time of indexing
    after = every.take(source * len(before) + columns)
    return np.concatenate([before[None], after])


def distinct(values: Ints) -> list[int]:
    """Returns the distinct values, ascending. np.unique would import numpy.ma: 30 ms and 2 MB."""
    return sorted({*values.tolist()})
