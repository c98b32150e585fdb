"""Plain files and links instead of the register device, in a directory made by another user."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from capabilities import cannot_make_devices, needs_fuse
from command import run_in_process
from fakekernel.client import FakeKernel
from journals import swept_directory

from perfprobe.programming import journal
from perfprobe.programming.counter_plan import Change, restore
from perfprobe.registers import msr
from perfprobe.registers.msr import MsrError, Registers

OURS = b"ours" * 8 + bytes(4096)
"""Content of a register file: a TSC that is not 0, and unused counters."""


def make_device(kind: int, major: int, minor: int) -> Callable[[Path], object]:
    return lambda place: os.mknod(place, 0o600 | kind, os.makedev(major, minor))


PLACED: dict[str, Callable[[Path], object]] = {
    "a file": lambda place: place.write_bytes(OURS),
    "a FIFO": os.mkfifo,
    "a link": lambda place: place.symlink_to("/dev/null"),
    "another device": make_device(stat.S_IFCHR, 1, 3),
    "a block device": make_device(stat.S_IFBLK, msr.MSR_MAJOR, 0),
    "the device of another CPU": make_device(stat.S_IFCHR, msr.MSR_MAJOR, 1),
}


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("placed", PLACED)
def test_nothing_but_the_device_is_opened(tmp_path: Path, placed: str, writable: bool) -> None:
    if "device" in placed and (why := cannot_make_devices()):
        pytest.skip(why)
    (tmp_path / "dev/cpu/0").mkdir(parents=True)
    PLACED[placed](tmp_path / "dev/cpu/0/msr")
    with pytest.raises(MsrError, match="cannot be opened: it is"):
        Registers(tmp_path, 0, writable=writable)


@needs_fuse
@pytest.mark.parametrize("linked", ["dev", "dev/cpu", "dev/cpu/0", "dev/cpu/0/msr"])
def test_links_are_not_followed_even_to_registers(tmp_path: Path, linked: str) -> None:
    """The directory itself may be a link, because the user named it."""
    with FakeKernel(tmp_path / "fake") as fake:
        root = tmp_path / "root"
        (root / linked).parent.mkdir(parents=True)
        (root / linked).symlink_to(fake.root / linked)
        with pytest.raises(MsrError, match="a link"):
            Registers(root, 0)
        (tmp_path / "name").symlink_to(fake.root)
        with Registers(tmp_path / "name", 0) as registers:
            assert registers.read(0xCE)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Path]:
    """A copy of a fake kernel in plain files: one CPU's registers are a link to a file elsewhere,
    the other's are a file."""
    root = tmp_path / "root"
    with FakeKernel(tmp_path / "fake", cores=1) as fake:
        for path in sorted(fake.root.rglob("*")):
            target = root / path.relative_to(fake.root)
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif path.name not in {"msr", "cpuid"}:
                target.write_bytes(path.read_bytes())
        for cpu in (0, 1):
            with (fake.root / f"dev/cpu/{cpu}/cpuid").open("rb", buffering=0) as file:
                (root / f"dev/cpu/{cpu}/cpuid").write_bytes(file.read(16))
    with swept_directory(root):
        yield root


@needs_fuse
def test_root_changes_no_file_of_an_archive(archive: Path, tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_bytes(OURS)
    (archive / "dev/cpu/0/msr").symlink_to(passwd)
    (archive / "dev/cpu/1/msr").write_bytes(OURS)
    options = ("--source", "msr", "--sysroot", str(archive), "-n", "1", "-i", "100ms")
    result = run_in_process("stat", *options)
    assert result.returncode == 3
    assert "link" in result.stderr
    assert [path.read_bytes() for path in (passwd, archive / "dev/cpu/1/msr")] == [OURS, OURS]


@needs_fuse
@pytest.mark.parametrize("there", ["a link", "a file"])
def test_a_journal_changes_no_file_of_an_archive(archive: Path, tmp_path: Path, there: str) -> None:
    """Restoring writes without reading the counters first."""
    passwd = tmp_path / "passwd"
    passwd.write_bytes(OURS)
    if there == "a link":
        (archive / "dev/cpu/0/msr").symlink_to(passwd)
    else:
        passwd.rename(archive / "dev/cpu/0/msr")
        passwd = archive / "dev/cpu/0/msr"
    change = Change(0x3C, 0x43003C)
    assert journal.is_plausible(0x186, change)
    with suppress(MsrError), Registers(archive, 0, writable=True) as registers:
        list(restore(registers, {0x186: change}))
    assert passwd.read_bytes() == OURS
