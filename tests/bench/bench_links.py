"""What other machines and other readers cost. A line for each figure:

bytes a second that come from a machine of 2 and of 256 CPUs, sampled once a second: as the header
of the screen tells them, and compressed as ssh does it (which adds some 60 bytes a packet); CPU
time of `serve` a second for each further reader, as a share of one CPU.
Run by hand: python tests/bench/bench_links.py [SECONDS]
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import tempfile
import zlib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("support", "bench")]

from started import children, started  # noqa: E402
from waiting import wait  # noqa: E402

from perfprobe import wire  # noqa: E402
from perftop.process.launch import probe_command  # noqa: E402
from perftop.process.streams import spawn  # noqa: E402

MOST_BYTES = {"os": 4_000, "sim:smt-mix,cpus=2,packages=1": 4_000, "sim:smt-mix,cpus=256": 60_000}
READERS = (1, 51)


async def rate(source: str, seconds: int) -> tuple[float, float]:
    """Bytes a second of a stream of one sample a second, without its hello; and compressed."""
    argv = probe_command("stream", "--source", source, "--sample", "1")
    frames = size = small = 0
    ssh = zlib.compressobj(6)
    async with spawn(argv) as stream:
        async for messages in stream:
            for message in messages:
                if not isinstance(message, wire.Hello):
                    data = wire.encode(message)
                    size += len(data)
                    small += len(ssh.compress(data) + ssh.flush(zlib.Z_PARTIAL_FLUSH))
                frames += isinstance(message, wire.Frame)
            if frames >= seconds:
                break
    return size / frames, small / frames


def used_s(pid: int) -> float:
    """CPU time so far of its first thread, which does all of the work."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def share(path: Path, pid: int, readers: int, seconds: int) -> float:
    """CPU time a second of the server with so many readers, of 10 samples a second."""
    with contextlib.ExitStack() as stack:
        peers = []
        for _ in range(readers):
            peer = stack.enter_context(socket.socket(socket.AF_UNIX))
            peer.connect(str(path))
            peers.append(peer)
        for peer in peers:
            peer.recv(1 << 20)
        decoder, frames, before_s = wire.Decoder(), 0, used_s(pid)
        first = stack.enter_context(socket.socket(socket.AF_UNIX))
        first.connect(str(path))
        while frames < 10 * seconds:
            data = first.recv(1 << 20)
            frames += sum(isinstance(m, wire.Frame) for m in decoder.feed(data))
            for peer in peers:
                with contextlib.suppress(BlockingIOError):
                    while peer.recv(1 << 20, socket.MSG_DONTWAIT):
                        pass
        return (used_s(pid) - before_s) / seconds


def main(seconds: int) -> int:
    worst = 0
    for source, most in MOST_BYTES.items():
        found, small = asyncio.run(rate(source, seconds))
        worst |= small > most
        told = f"{found / 1e3:.2f} kB/s, {small / 1e3:.2f} through ssh"
        print(f"{source:<29} {told}, at most {most / 1e3:.0f}")
    for cpus in (2, 256):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "s"
            source = f"sim:smt-mix,cpus={cpus},packages=1"
            with started("serve", "--socket", str(path), "--source", source) as server:
                wait(path.exists, "the socket")
                wait(lambda: children(server.pid), "the probe")
                few, many = (share(path, server.pid, n, seconds) for n in READERS)
        each = (many - few) / (READERS[1] - READERS[0])
        told = f"{100 * few:.2f} % of a CPU with {READERS[0] + 1} readers"
        print(f"serve, {cpus:3} CPUs, 10 Hz: {told}, {100 * each:.3f} % for each more")
    return worst


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
