"""Files and directories of the fake kernel: text, registers, CPUID."""

from __future__ import annotations

import errno
import stat
import struct
from collections.abc import Callable
from itertools import count

from fakekernel import cpuid
from fakekernel.machine import REG, Processor

_inodes = count(2)  # 1 is the root of the file system
U64 = struct.Struct("<Q")


def _error(code: int) -> OSError:
    return OSError(code, errno.errorcode[code])


class Node:
    mode = 0
    size = 0

    def __init__(self) -> None:
        self.ino = next(_inodes)

    def open(self, _fh: int, /) -> None:
        """Called for every open; may raise OSError."""

    def release(self, _fh: int, /) -> None:
        """Called after the last use of an open file."""

    def read(self, _fh: int, _offset: int, _size: int, /) -> bytes:
        raise _error(errno.EISDIR)

    def write(self, _offset: int, _data: bytes, /) -> int:
        raise _error(errno.EACCES)


class Dir(Node):
    mode = stat.S_IFDIR | 0o755

    def __init__(self) -> None:
        super().__init__()
        self.children: dict[str, Node] = {}

    def put(self, path: str, node: Node) -> None:
        *parents, name = path.strip("/").split("/")
        at = self
        for part in parents:
            below = at.children.get(part)
            if below is None:
                below = at.children[part] = Dir()
            if not isinstance(below, Dir):
                raise _error(errno.ENOTDIR)
            at = below
        at.children[name] = node

    def text(self, path: str, content: str | Callable[[], str]) -> None:
        self.put(path, Text(content))

    def remove(self, path: str) -> None:
        *parents, name = path.strip("/").split("/")
        at: Node = self
        for part in parents:
            at = at.children[part] if isinstance(at, Dir) else at
        if isinstance(at, Dir):
            at.children.pop(name, None)


class Text(Node):
    """A text file of the kernel. Its text is made when it is read from the start."""

    mode = stat.S_IFREG | 0o444
    size = 4096

    def __init__(self, content: str | Callable[[], str]) -> None:
        super().__init__()
        self.content = content
        self.snapshots: dict[int, bytes] = {}

    def read(self, fh: int, offset: int, size: int, /) -> bytes:
        if offset == 0 or fh not in self.snapshots:
            text = self.content if isinstance(self.content, str) else self.content()
            self.snapshots[fh] = text.encode()
        return self.snapshots[fh][offset : offset + size]

    def release(self, fh: int, /) -> None:
        self.snapshots.pop(fh, None)


class Msr(Node):
    """/dev/cpu/N/msr: the offset is a register, modulo 2^32."""

    mode = stat.S_IFREG | 0o600

    def __init__(self, processor: Processor, open_error: int = 0) -> None:
        super().__init__()
        self.processor, self.open_error = processor, open_error

    def open(self, _fh: int, /) -> None:
        if self.open_error:
            raise _error(self.open_error)
        if not self.processor.online:
            raise _error(errno.ENXIO)

    def read(self, _fh: int, offset: int, size: int, /) -> bytes:
        if size % 8:
            raise _error(errno.EINVAL)
        if not self.processor.online:
            raise _error(errno.ENXIO)
        try:
            value = self.processor.read(offset & REG)
        except KeyError:
            raise _error(errno.EIO) from None
        if size == 8:
            return U64.pack(value)
        return b"".join(
            U64.pack(self.processor.read(offset & REG)) for _ in range(min(size, 4096) // 8)
        )

    def write(self, offset: int, data: bytes, /) -> int:
        if len(data) % 8:
            raise _error(errno.EINVAL)
        if not self.processor.online:
            raise _error(errno.ENXIO)
        for (value,) in U64.iter_unpack(data):
            self.processor.write(offset & REG, value)
        return len(data)


class Cpuid(Node):
    """/dev/cpu/N/cpuid: the offset is leaf | subleaf << 32, each 16 bytes the next leaf."""

    mode = stat.S_IFREG | 0o444

    def __init__(self, processor: Processor) -> None:
        super().__init__()
        self.processor = processor

    def open(self, _fh: int, /) -> None:
        if not self.processor.online:
            raise _error(errno.ENXIO)

    def read(self, _fh: int, offset: int, size: int, /) -> bytes:
        if size % 16:
            raise _error(errno.EINVAL)
        model, table = self.processor.machine.model, self.processor.table
        return b"".join(
            struct.pack("<4I", *cpuid.answer(table, model, offset + i & REG))
            for i in range(min(size, 4096) // 16)
        )

    def write(self, _offset: int, _data: bytes, /) -> int:
        raise _error(errno.EIO)
