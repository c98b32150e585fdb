"""Definitions that every other folder uses. This file imports only modules that the interpreter has
already loaded."""

import signal

END_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask perftop to end."""
