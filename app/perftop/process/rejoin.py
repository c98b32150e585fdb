"""The stream of a probe that was started again after its link had broken, continued as if it were
one: a note for the gap, then frames whose counters begin anew.

Both probes ran on the same boot of the same machine, so raw times go on. What only the first hello
tells holds on, so the second has to describe the same frames.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfprobe import wire
from perfprobe.frozen import asdict, replace

SLEPT_NS = 1_000_000_000
"""Wall time may move this far against raw time, by a clock that is set right, and is no sleep."""


class Rejoin:
    """Makes messages of later connections fit the first hello. It is fed all of them."""

    def __init__(self, hello: wire.Hello | None = None) -> None:
        self.hello = hello
        """The first hello; None: none has come."""
        rows = () if hello is None else hello.topology
        self.now_ns = 0 if hello is None else hello.raw_ns
        """Raw time of the newest frame."""
        self._seq = self._lost = self._late = 0
        self._totals = (0, 0, 0)
        """Sequence, losses and late frames of earlier connections together."""
        self._asleep_ns = self._slept_ns = 0
        self._cpus = [row.cpu for row in rows]
        self._off = {row.cpu for row in rows if not row.online}
        """CPUs that are offline now."""
        self._stale: dict[str, np.ndarray] = {}
        """Mask of the rows that were not read since the gap, by block."""

    def unfit(self, hello: wire.Hello) -> str:
        """Why frames after this hello cannot follow those before; '': they can."""
        old = self.hello
        assert old is not None
        if hello.boot_id != old.boot_id or hello.host != old.host or hello.raw_ns < self.now_ns:
            return "the machine was restarted, or is another one"
        same = all(
            getattr(hello, name) == getattr(old, name)
            for name in ("cores", "packages", "blocks", "stamp", "selected")
        )
        cpus = [row.cpu for row in hello.topology] == [row.cpu for row in old.topology]
        return "" if same and cpus else "its CPUs or its counters are others than before"

    def again(self, hello: wire.Hello, why: str) -> list[wire.Message]:
        """The notes that stand for a later hello that fits."""
        old = self.hello
        assert old is not None
        self._totals = (self._seq + 1, self._lost, self._late)
        apart_ns = (hello.wall_ns - hello.raw_ns) - (old.wall_ns - old.raw_ns)
        self._slept_ns = max(self._asleep_ns, apart_ns if apart_ns > SLEPT_NS else 0)
        rows = ((block.name, hello.rows(block.scope)) for block in hello.blocks)
        self._stale = {name: np.ones(count, bool) for name, count in rows}
        data = {"since_ns": self.now_ns, "why": why}
        notes = [wire.Note("gap", hello.raw_ns, "recorder", data)]
        for row in hello.topology:
            if row.online != (row.cpu not in self._off):
                data = {"cpu": row.cpu, "online": row.online, "row": asdict(row)}
                notes.append(wire.Note("hotplug", hello.raw_ns, "recorder", data))
        self._off = {row.cpu for row in hello.topology if not row.online}
        return list(notes)

    def taken(self, messages: list[wire.Message]) -> Iterator[wire.Message]:
        """Messages after a hello, as they follow those of earlier connections."""
        for message in messages:
            if isinstance(message, wire.Frame):
                yield self._frame(message)
            else:
                if isinstance(message, wire.Note) and message.kind == "hotplug":
                    turn = self._off.discard if message.data.get("online") else self._off.add
                    if (cpu := message.data.get("cpu")) in self._cpus:
                        turn(cpu)
                yield message

    def _frame(self, frame: wire.Frame) -> wire.Frame:
        seq, lost, late = self._totals
        asleep = frame.records.get("asleep_ns")
        asleep_ns = _sum(self._slept_ns, asleep if type(asleep) is int else 0)
        if seq:
            records = frame.records | ({"asleep_ns": asleep_ns} if asleep_ns else {})
            frame = replace(
                frame, seq=_sum(seq, frame.seq), lost=_sum(lost, frame.lost),
                late=_sum(late, frame.late),
                records=records, blocks=self._rebased(frame.blocks),
            )  # fmt: skip
        self.now_ns, self._seq, self._asleep_ns = frame.time_ns, frame.seq, asleep_ns
        self._lost, self._late = frame.lost, frame.late
        return frame

    def _rebased(self, blocks: dict[str, wire.Rows]) -> dict[str, wire.Rows]:
        """The blocks, with ROW_REBASED on each row up to its first read."""
        if not self._stale:
            return blocks
        found = dict(blocks)
        for name, stale in list(self._stale.items()):
            if name in blocks:
                head = np.frombuffer(blocks[name].head, "<u8").reshape(-1, wire.HEAD).copy()
                whole = len(head) == 1  # a single head row stands for all rows
                marked = np.array([stale.any()]) if whole else stale
                head[marked, 4] |= np.uint64(wire.ROW_REBASED)
                found[name] = replace(blocks[name], head=head.tobytes())
                read = head[:, 4] & np.uint64(wire.ROW_SAMPLED) != 0
                self._stale[name] = left = stale & ~read
                if not left.any():
                    del self._stale[name]
        return found


def _sum(one: int, other: int) -> int:
    """A sum that a message can hold, whatever came."""
    return min(one + max(0, other), wire.LATEST_NS)
