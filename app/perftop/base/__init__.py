"""Definitions that every other folder uses. Importing this file loads no other module."""

import signal
import time

END_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask perftop to end."""


def raw_ns() -> int:
    """Returns the raw time in ns: the clock of samples, which is never adjusted."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
