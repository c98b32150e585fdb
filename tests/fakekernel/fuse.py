"""The part of the kernel's FUSE protocol, version 7.31, that a tree of small files needs.

Structures are those of include/uapi/linux/fuse.h; little-endian machines only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from fakekernel.nodes import Dir, Node

MNT_DETACH, MS_NOSUID, MS_NODEV = 2, 2, 4
DIRECT_IO = 1
BUFFER = 0x21000  # a request of MAX_WRITE with its headers
MAX_WRITE = 0x20000

LOOKUP, FORGET, GETATTR, SETATTR = 1, 2, 3, 4
OPEN, READ, WRITE, STATFS, RELEASE = 14, 15, 16, 17, 18
INIT, OPENDIR, READDIR, RELEASEDIR = 26, 27, 28, 29
INTERRUPT, DESTROY, BATCH_FORGET = 36, 38, 42
UNANSWERED = {FORGET, INTERRUPT, BATCH_FORGET}

IN = struct.Struct("<IIQQIIII")  # len, opcode, unique, node, uid, gid, pid, -
OUT = struct.Struct("<IiQ")  # len, error, unique
IO = struct.Struct("<QQIIQII")  # fh, offset, size, flags, lock owner, flags, -
ATTR = struct.Struct("<6Q10I")
ENTRY = struct.Struct("<4Q2I")
OPENED = struct.Struct("<QII")

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, path: Path) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))


def mount(path: Path) -> int:
    """Mounts a directory. Returns the descriptor from which requests are read."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    try:
        _checked(
            _libc.mount(
                b"fakekernel",
                os.fsencode(path),
                b"fuse.fakekernel",
                ctypes.c_ulong(MS_NOSUID | MS_NODEV),
                options.encode(),
            ),
            path,
        )
    except OSError:
        os.close(fd)
        raise
    return fd


def unmount(path: Path) -> None:
    """Unmounts immediately, even if files are open."""
    _checked(_libc.umount2(os.fsencode(path), MNT_DETACH), path)


def _attr(node: Node) -> bytes:
    links = 2 if stat.S_ISDIR(node.mode) else 1
    size = node.size
    return ATTR.pack(node.ino, size, 0, 0, 0, 0, 0, 0, 0, node.mode, links, 0, 0, 0, 4096, 0)


class Server:
    def __init__(self, root: Dir, lock: threading.Lock) -> None:
        self.root, self.lock = root, lock
        self.nodes: dict[int, Node] = {1: root, root.ino: root}
        self.fh = 0
        self.failed = False  # whether a handler failed because of a bug
        self.handlers: dict[int, Callable[[Node, memoryview], bytes]] = {
            LOOKUP: self._lookup,
            GETATTR: lambda node, _: struct.pack("<QII", 0, 0, 0) + _attr(node),
            SETATTR: lambda node, _: struct.pack("<QII", 0, 0, 0) + _attr(node),
            OPEN: self._open,
            WRITE: self._write,
            STATFS: lambda _node, _: struct.pack("<5Q4I24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0),
            RELEASE: self._release,
            INIT: self._init,
            OPENDIR: lambda _node, _: OPENED.pack(0, 0, 0),
            READDIR: self._readdir,
            RELEASEDIR: lambda _node, _: b"",
            DESTROY: lambda _node, _: b"",
        }

    def serve(self, fd: int) -> None:
        """Answers requests until the file system is unmounted."""
        buffer = bytearray(BUFFER)
        view = memoryview(buffer)
        while True:
            try:
                size = os.readv(fd, [buffer])
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                raise
            _, opcode, unique, ino, *_ = IN.unpack_from(buffer)
            if opcode in UNANSWERED:
                continue
            try:
                with self.lock:
                    if opcode == READ:  # reads are handled here, because they must be fast
                        fh, offset, length, *_ = IO.unpack_from(buffer, IN.size)
                        body = self.nodes[ino].read(fh, offset, length)
                    else:
                        body = self._answer(opcode, ino, view[IN.size : size])
                reply = OUT.pack(OUT.size + len(body), 0, unique) + body
            except OSError as error:
                reply = OUT.pack(OUT.size, -(error.errno or errno.EIO), unique)
            except Exception:  # noqa: BLE001 - a bug here must not hang the caller
                traceback.print_exc()
                self.failed = True
                reply = OUT.pack(OUT.size, -errno.EIO, unique)
            try:
                os.write(fd, reply)
            except FileNotFoundError:  # the caller was interrupted
                continue

    def _answer(self, opcode: int, ino: int, body: memoryview) -> bytes:
        handler = self.handlers.get(opcode)
        if handler is None:
            raise OSError(errno.ENOSYS, "not served")
        node = self.nodes.get(ino, self.root)
        return handler(node, body)

    def _init(self, _node: Node, body: memoryview) -> bytes:
        major, _minor, readahead, _flags = struct.unpack_from("<4I", body)
        if major != 7:
            raise OSError(errno.EPROTO, "FUSE 7 only")
        return struct.pack("<4I2H2I2H8I", 7, 31, readahead, 0, 12, 9, MAX_WRITE, 1, 32, *[0] * 9)

    def _lookup(self, node: Node, body: memoryview) -> bytes:
        name = bytes(body).rstrip(b"\0").decode()
        child = node.children.get(name) if isinstance(node, Dir) else None
        if child is None:
            raise FileNotFoundError(errno.ENOENT, name)
        self.nodes[child.ino] = child
        return ENTRY.pack(child.ino, 0, 0, 0, 0, 0) + _attr(child)

    def _open(self, node: Node, _body: memoryview) -> bytes:
        self.fh += 1
        node.open(self.fh)
        return OPENED.pack(self.fh, DIRECT_IO, 0)

    def _write(self, node: Node, body: memoryview) -> bytes:
        _fh, offset, size, *_ = IO.unpack_from(body)
        written = node.write(offset, bytes(body[IO.size : IO.size + size]))
        return struct.pack("<II", written, 0)

    def _release(self, node: Node, body: memoryview) -> bytes:
        node.release(struct.unpack_from("<Q", body)[0])
        return b""

    def _readdir(self, node: Node, body: memoryview) -> bytes:
        _fh, offset, size, *_ = IO.unpack_from(body)
        children = node.children if isinstance(node, Dir) else {}
        entries = [(".", node), ("..", node), *children.items()]
        out = b""
        for i, (name, child) in enumerate(entries[offset:], offset + 1):
            raw = name.encode()
            entry = struct.pack("<QQII", child.ino, i, len(raw), child.mode >> 12) + raw
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out


__all__ = ["Server", "mount", "unmount"]
