"""The mounted tree, read with real system calls from a process other than its server."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import struct
import subprocess
import sys
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


def test_drivers_that_fail_or_do_not_exist(fake: FakeKernel, tmp_path: Path) -> None:
    with Msr(fake) as msr:
        fake.ask("options", writes="eperm")
        with pytest.raises(PermissionError):
            msr.write(0x186, 1)
        fake.ask("options", writes="drop")
        msr.write(0x186, 1)
        assert msr.read(0x186) == 0
        fake.ask("options", reads="zero")
        assert [msr.read(reg) for reg in (0x10, 0xCE, 0x999)] == [0, 0, 0]
        assert [entry["result"] for entry in fake.writes()] == ["EPERM", "dropped"]
    with FakeKernel(tmp_path / "shut", open_error="EPERM") as shut, pytest.raises(PermissionError):
        Msr(shut)
    with FakeKernel(tmp_path / "none", msr=False) as none:
        assert sorted(path.name for path in (none.root / "dev/cpu/0").iterdir()) == ["cpuid"]


def test_a_cpu_goes_offline_and_returns(fake: FakeKernel) -> None:
    cpu = fake.root / "sys/devices/system/cpu"
    with Msr(fake, 3) as msr:
        fake.ask("online", cpu=3, online=False)
        with pytest.raises(OSError) as caught:
            msr.read(0x10)
        assert caught.value.errno == errno.ENXIO
    assert not (fake.root / "dev/cpu/3").exists()
    assert (cpu / "online").read_text() == "0-2\n"
    assert (cpu / "cpu1/topology/core_cpus_list").read_text() == "1\n"
    fake.ask("online", cpu=3, online=True)
    with Msr(fake, 3) as msr:
        assert msr.read(0x10) > 0


def test_a_bug_in_the_fake_causes_an_error_instead_of_a_hang(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = FakeKernel(tmp_path / "root")
    fake.ask("poke", cpu=0, reg=0x1234, value="no number")
    with Msr(fake) as msr, pytest.raises(OSError):
        msr.read(0x1234)
    with pytest.raises(RuntimeError, match="no_such_command"):
        fake.ask("no_such_command")
    with pytest.raises(RuntimeError, match="ended with 1"):
        fake.stop()
    assert "struct.error" in capfd.readouterr().err


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


def test_the_server_ends_with_its_parent(tmp_path: Path) -> None:
    root = tmp_path / "root"
    code = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from fakekernel.client import FakeKernel
fake = FakeKernel(Path({str(root)!r}))
print(os.path.exists({str(root / "dev/cpu/0/msr")!r}), flush=True)
os._exit(9)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=100
    )
    assert (result.returncode, result.stdout) == (9, "True\n")
    wait_for(lambda: not mounts(root), "nothing is mounted there")
