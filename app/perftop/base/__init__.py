"""Definitions that every other folder uses. This file imports only what the interpreter has loaded
anyway."""

import signal

END_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask perftop to end."""
