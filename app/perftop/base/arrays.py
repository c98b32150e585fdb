"""Types of numpy arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def distinct(values: Ints) -> list[int]:
    """Ascending. np.unique would import numpy.ma for it: 30 ms and 2 MB."""
    return sorted({*values.tolist()})
