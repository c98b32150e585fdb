"""Finds frames in which every CPU was read; on a busy machine some reads come too late."""

from __future__ import annotations

import numpy as np

from perfprobe import wire


def whole(hello: wire.Hello, frame: wire.Frame) -> bool:
    """Whether every row of the frame was read or belongs to an offline CPU."""
    read = wire.ROW_SAMPLED | wire.ROW_OFFLINE
    flags = [
        np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD)[:, 4]
        for rows in frame.blocks.values()
    ]
    return bool((np.concatenate(flags) & np.uint64(read) != 0).all())
