"""Types of numpy arrays. numpy.typing is not used, as it takes longer to import than a view."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Singles = np.ndarray[Any, np.dtype[np.float32]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Codes = np.ndarray[Any, np.dtype[np.uint8]]


def any_by_sample(mask: Bools) -> list[bool]:
    """For each sample (the first of two axes) whether any element is true."""
    result: list[bool] = np.logical_or.reduce(mask, axis=-1).tolist()
    return result


def distinct(values: Ints) -> list[int]:
    """The distinct values, ascending. np.unique would import numpy.ma: 30 ms and 2 MB."""
    return sorted({*values.tolist()})
