"""Registers of one CPU, and the counter plans of each model."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
import trees
from capabilities import cannot_make_devices, needs_fuse
from command import run_in_process
from fakekernel.client import FakeKernel
from journals import swept_directory

from perfprobe.cpu import files, identity, topology
from perfprobe.programming import journal
from perfprobe.programming.counter_plan import Change, restore
from perfprobe.registers import limits, msr
from perfprobe.registers.msr import MsrError, Registers
from perfprobe.wire import Rate

# --- the driver -----------------------------------------------------------------------------------


@needs_fuse
def test_registers_are_read_and_written(fake: FakeKernel) -> None:
    with Registers(fake.root, 1) as device:
        assert device.read(0xCE) == 21 << 8 | 10 << 40
        with pytest.raises(MsrError, match="MSR 999H cannot be read") as caught:
            device.read(0x999)
        assert caught.value.code == errno.EIO
        assert str(caught.value) == caught.value.cause
        with pytest.raises(MsrError, match="opened for reading"):
            device.write(0x186, 1)
    with Registers(fake.root, 1, writable=True) as device:
        device.write(0x186, 0x43003C)
        assert fake.peek(1, 0x186) == 0x43003C
        with pytest.raises(MsrError, match="MSR CEH cannot be written"):
            device.write(0xCE, 1)


@needs_fuse
def test_a_write_counts_when_it_is_read_back(fake: FakeKernel) -> None:
    fake.ask("options", writes="drop")
    with (
        Registers(fake.root, 0, writable=True) as device,
        pytest.raises(MsrError, match="holds 0H after 43003CH") as caught,
    ):
        device.write(0x186, 0x43003C)
    assert caught.value.code == 0


@needs_fuse
@pytest.mark.parametrize(("path", "text", "cause"), [
    ("sys/module/msr/parameters/allow_writes", "off\n", "to MSRs .msr.allow_writes=off"),
    ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n", "kernel lockdown"),
    ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n", "lockdown or"),
])  # fmt: skip
def test_a_refused_write_has_its_cause(fake: FakeKernel, path: str, text: str, cause: str) -> None:
    fake.ask("file", path=path, text=text)
    fake.ask("options", writes="eperm")
    with (
        Registers(fake.root, 0, writable=True) as device,
        pytest.raises(MsrError, match=cause) as caught,
    ):
        device.write(0x186, 1)
    assert caught.value.fix
    assert caught.value.consequence == "registers can be read, not programmed"


@pytest.mark.parametrize(("guest", "module", "fix"), [
    ("KVM", True, "sudo modprobe msr"),
    ("KVM", False, None),
    (None, False, "sudo modprobe msr, on the host"),
])  # fmt: skip
def test_modprobe_is_suggested_only_if_the_module_can_exist(
    monkeypatch: pytest.MonkeyPatch, guest: str | None, module: bool, fix: str | None
) -> None:
    monkeypatch.setattr(identity, "virtualisation", lambda _: guest)
    monkeypatch.setattr(Path, "glob", lambda *_: iter([Path("msr.ko")] if module else []))
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory")
    monkeypatch.setattr(msr, "open_device", Mock(side_effect=missing))
    monkeypatch.setattr(files, "numbered_entries", lambda *_: [])
    with pytest.raises(MsrError, match="no /dev/cpu/N/msr") as caught:
        Registers(Path("/"), 0)
    assert caught.value.fix == fix


@pytest.mark.parametrize(("error", "namespace", "cause", "fix"), [
    (errno.EACCES, False, "/dev/cpu/3/msr needs root (CAP_SYS_RAWIO)", "perftop --sudo"),
    (errno.EPERM, True, "/dev/cpu/3/msr needs root (CAP_SYS_RAWIO)",
     "start perftop outside this user namespace, as root"),
    (errno.ENXIO, False, "CPU 3 is offline", None),
    (errno.ENODEV, False, "CPU 3 is offline", None),
    (errno.EMFILE, False, "too many open files", "raise `ulimit -n`"),
    (errno.EIO, False, "/dev/cpu/3/msr cannot be opened: why", None),
])  # fmt: skip
def test_a_device_that_cannot_be_opened_has_its_cause(
    monkeypatch: pytest.MonkeyPatch, error: int, namespace: bool, cause: str, fix: str | None
) -> None:
    monkeypatch.setattr(identity, "is_in_user_namespace", lambda _: namespace)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(msr, "open_device", Mock(side_effect=OSError(error, "why")))
    with pytest.raises(MsrError) as caught:
        Registers(Path("/"), 3)
    problem = caught.value
    assert (problem.cause, problem.fix, problem.code) == (cause, fix, error)
    assert problem.consequence == "no register can be read"
    assert problem.is_offline == (error in {errno.ENXIO, errno.ENODEV})


def test_a_missing_driver_is_reported_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(MsrError, match="not loaded") as caught:
        Registers(tmp_path, 0)
    assert caught.value.fix == "sudo modprobe msr"
    (tmp_path / "dev/cpu/0").mkdir(parents=True)
    (tmp_path / "dev/cpu/0/msr").touch()
    with pytest.raises(MsrError, match="CPU 7 is offline or absent"):
        Registers(tmp_path, 7)


@needs_fuse
def test_registers_of_an_offline_cpu_cannot_be_read(fake: FakeKernel) -> None:
    with Registers(fake.root, 3) as device:
        fake.ask("online", cpu=3, online=False)
        with pytest.raises(MsrError, match="CPU 3 is off"):
            device.read(0x10)


@needs_fuse
def test_reading_opens_the_device_read_only(fake: FakeKernel) -> None:
    parts, survey = limits.open_registers(fake.root, topology.read_cpus(fake.root))
    slots = [slot for part in parts for cpu in range(4) for slot in part.open(cpu)]
    flags = [Path(f"/proc/self/fdinfo/{slot.fd}").read_text() for slot in slots]
    assert {int(text.split("flags:")[1].split()[0], 8) & os.O_ACCMODE for text in flags} == {0}
    assert {c.key for part in parts for c in part.counters} >= {
        "tsc", "aperf", "mperf", "smi", "core_c6", "package_pc2",
        "core_thermal", "package_thermal", "limit_reasons", "temperature_c", "turbo_disabled",
        "power_limit_w", "power_limit2_w", "power_throttled_s",
        "modulation", "hwp_epp", "hwp_max", "hwp_highest",
    }  # fmt: skip
    assert {m.what for m in survey.missing} == {"core_c3", "core_c7", "package_pc7"}
    assert survey.tsc_hz is not None
    assert survey.tsc_hz.hz == pytest.approx(2.1e9, rel=2e-3)
    for part in parts:
        part.close()
    assert fake.writes() == []


@pytest.mark.parametrize(("offset", "error", "is_used"), [
    (0.0, 1e-9, True), (0.1, 1e-9, False), (0.0, 0.5, False), (0.0, None, False),
])  # fmt: skip
def test_the_tsc_has_the_rate_of_a_better_candidate_that_agrees(
    offset: float, error: float | None, is_used: bool
) -> None:
    """A register that counts 2 GHz."""
    device = Mock(read=lambda _: 2 * time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
    candidate = Rate(2e9 * (1 + offset), "CPUID", error)
    rate = limits._tsc_hz(device, [candidate])
    assert (rate is candidate) == is_used
    assert rate.hz == pytest.approx(2e9, rel=1e-3)
    assert is_used or re.search(r"^MSR 10H against CLOCK_MONOTONIC_RAW for 0\.\d\d s$", rate.origin)


def test_unreadable_registers_are_reported_and_not_raised(tmp_path: Path) -> None:
    trees.write_machine(tmp_path, 1)
    parts, survey = limits.open_registers(tmp_path, topology.read_cpus(tmp_path))
    assert parts == []
    assert {m.fix for m in survey.missing} == {"sudo modprobe msr"}


# --- the device -----------------------------------------------------------------------------------


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
