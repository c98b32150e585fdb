"""How the C helper tells of failure: its functions return -errno."""

from __future__ import annotations

import os


def checked(result: int) -> int:
    """What such a function returned, where it is no error. Raises OSError."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result
