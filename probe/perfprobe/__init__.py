"""perfprobe: reads the raw counters of this machine and writes them as a stream; perfprobe.wire
describes the stream."""

__version__ = "0.2.0"
