"""Reads the raw counters of this machine and writes them as a stream (see perfprobe.wire)."""

__version__ = "0.2.0"
