"""Types of numpy arrays. numpy.typing is not used, because importing it takes longer than importing
a view of the screen."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Float32s = np.ndarray[Any, np.dtype[np.float32]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Codes = np.ndarray[Any, np.dtype[np.uint8]]
