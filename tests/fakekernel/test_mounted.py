"""The mounted tree, read with real system calls from a process other than its server."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from capabilities import needs_fuse
from waiting import MAX_WAIT_S, wait_for

from fakekernel.client import FakeKernel, Msr

pytestmark = needs_fuse


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeKernel]:
    with FakeKernel(tmp_path / "root") as kernel:
        yield kernel


def mounts(path: Path) -> bool:
    return f" {path} " in Path("/proc/mounts").read_text()


def test_the_driver_returns_the_errors_of_the_real_one(fake: FakeKernel) -> None:
    with Msr(fake) as msr, Msr(fake, flags=os.O_RDONLY) as read_only:
        for size, reg, code in (
            (8, 0x999, errno.EIO),
            (4, 0x10, errno.EINVAL),
            (12, 0x10, errno.EINVAL),
        ):
            with pytest.raises(OSError) as caught:
                os.pread(msr.fd, size, reg)
            assert caught.value.errno == code
        twice = os.pread(msr.fd, 16, 0xCE)
        assert twice[:8] == twice[8:] == struct.pack("<Q", 21 << 8 | 10 << 40)
        assert msr.read(0xCE + (5 << 32)) == msr.read(0xCE)
        assert msr.read(0x309) == 0  # registers at adjacent offsets do not overlap
        msr.write(0x30A, 0x1234_5678_9ABC)
        assert [msr.read(reg) for reg in (0x309, 0x30A, 0x30B)] == [0, 0x1234_5678_9ABC, 0]
        with pytest.raises(OSError) as caught:
            os.pwrite(read_only.fd, bytes(8), 0x186)
        assert caught.value.errno == errno.EBADF
        with pytest.raises(OSError) as caught:
            os.pwrite(msr.fd, bytes(8), 0xCE)
        assert caught.value.errno == errno.EIO
        with pytest.raises(OSError) as caught:
            os.pwrite(msr.fd, bytes(7), 0x186)
        assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("how", ["stop", "open", "terminate", "kill"])
def test_nothing_stays_mounted(tmp_path: Path, how: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    fake = FakeKernel(root)
    assert mounts(root)
    descriptor = os.open(root / "dev/cpu/0/msr", os.O_RDONLY)
    if how != "open":
        os.close(descriptor)
    if how in ("terminate", "kill"):
        fake.process.send_signal(signal.SIGTERM if how == "terminate" else signal.SIGKILL)
        fake.process.wait(MAX_WAIT_S)
    fake.stop(check=False)
    wait_for(lambda: not mounts(root), "nothing is mounted there")
    if how == "open":
        with pytest.raises(OSError):
            os.pread(descriptor, 8, 0x10)
        with contextlib.suppress(OSError):  # close also fails without a server
            os.close(descriptor)
    assert list(root.iterdir()) == []
