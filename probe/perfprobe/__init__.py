"""Raw counters of this machine, as a stream (see wire.py)."""

__version__ = "0.1.0"
