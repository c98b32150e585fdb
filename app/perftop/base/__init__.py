"""Definitions that every other folder uses. Importing this file loads no other module."""

import signal
import time

END_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask perftop to end."""
GC_THRESHOLD = 10_000
"""Number of new objects after which the garbage collector runs. With Python's default of 700 it
would run at each refresh of a screen and for each record of a big machine's tasks, and take 5 % of
the time."""
MALLOC_WARM_UP_BYTES = 1 << 22
"""Size in bytes of a block that is allocated and freed once: malloc then keeps as much freed memory
for the next samples, instead of returning it to the kernel."""


def raw_ns() -> int:
    """Returns the raw time in ns: the clock of samples, which is never adjusted."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
