"""Raw counters of this machine, as a stream (see wire)."""

__version__ = "0.2.0"
