"""How functions of the C helper fail (they return -errno), and what cannot be had at all."""

from __future__ import annotations

import os


def checked(result: int) -> int:
    """The result if it is no error. Raises OSError for -errno."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a mistake
    """The machine cannot do what was asked; the text names the blocker and the remedy."""


class NotRestored(Exception):  # noqa: N818 - a state of the machine, not a mistake
    """Registers are not as they were; the text names them and the remedy."""
