"""Definitions that every other folder uses. Importing this file loads no other module."""

import signal

END_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask perftop to end."""
