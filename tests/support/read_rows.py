"""Frames in which every CPU was read: on a machine that others keep busy, some come too late."""

from __future__ import annotations

import numpy as np

from perfprobe import wire


def whole(hello: wire.Hello, frame: wire.Frame) -> bool:
    """Every row of it was read, or is of a CPU that is off."""
    read = wire.ROW_SAMPLED | wire.ROW_OFFLINE
    flags = [
        np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD)[:, 4]
        for rows in frame.blocks.values()
    ]
    return bool((np.concatenate(flags) & np.uint64(read) != 0).all())
