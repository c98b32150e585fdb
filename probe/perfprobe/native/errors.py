"""How the C helper tells of failure: its functions return -errno."""

from __future__ import annotations

import os


def checked(result: int) -> int:
    """What such a function returned, where it is no error. Raises OSError."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a mistake
    """The source asked for cannot be had here; the text names the blocker and the mend."""
