"""Which machine this is: names, kernel, CPU identity, hypervisor. Files below `root` only."""

from __future__ import annotations

import os
import re
from pathlib import Path

from perfprobe import cpulist
from perfprobe.wire import Identity

CPUS = "sys/devices/system/cpu"
SMALL = 4096  # a file of /sys; the kernel prints at most a page
FIRST_RECORD = 1 << 14  # of /proc/cpuinfo: flags and bugs of today's CPUs take 2 KiB
ALL_RECORDS = 1 << 24  # 8192 CPUs of 2 KiB

# What is searched for in DMI's vendor and product, in this order: clouds say KVM as well.
_HYPERVISORS = (
    ("amazon ec2", "Amazon EC2"),
    ("google", "Google"),
    ("microsoft", "Hyper-V"),
    ("vmware", "VMware"),
    ("virtualbox", "VirtualBox"),
    ("innotek", "VirtualBox"),
    ("parallels", "Parallels"),
    ("bhyve", "bhyve"),
    ("xen", "Xen"),
    ("kvm", "KVM"),
    ("openstack", "OpenStack"),
    ("qemu", "QEMU"),
    ("bochs", "Bochs"),
)


def hostname(root: Path = Path("/")) -> str:
    """Empty where it is not to be read."""
    return _line(f"{root}/proc/sys/kernel/hostname") or ""


def kernel(root: Path = Path("/")) -> str:
    """The release; empty where it is not to be read."""
    return _line(f"{root}/proc/sys/kernel/osrelease") or ""


def boot_id(root: Path = Path("/")) -> str | None:
    return _line(f"{root}/proc/sys/kernel/random/boot_id")


def clocksource(root: Path = Path("/")) -> str | None:
    """What the system takes the time from."""
    return _line(f"{root}/sys/devices/system/clocksource/clocksource0/current_clocksource")


def identity(root: Path = Path("/")) -> Identity:
    """The first CPU of /proc/cpuinfo: on hybrids all types share family and model."""
    fields = _first_record(root)
    return Identity(
        vendor=_clean(fields.get("vendor_id") or fields.get("CPU implementer", "")),
        family=natural(fields.get("cpu family")),
        model=natural(fields.get("model")),
        stepping=natural(fields.get("stepping")),
        name=_clean(fields.get("model name") or fields.get("cpu", "")),
        microcode=_clean(fields.get("microcode", "")) or None,
    )


def virtualisation(root: Path = Path("/")) -> str | None:
    """The hypervisor's name, "hypervisor" where it hides it, None on bare metal.

    DMI alone proves nothing on x86: a bare-metal EC2 machine says "Amazon EC2" too. So there the
    CPU's own flag decides and DMI only names. /sys/hypervisor exists under Xen alone.
    """
    kind = _line(f"{root}/sys/hypervisor/type")
    if kind:
        return "Xen" if kind.lower() == "xen" else kind
    flags = _first_record(root).get("flags")
    if flags is not None and "hypervisor" not in flags.split():
        return None
    dmi = [_line(f"{root}/sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")]
    said = " ".join(part for part in dmi if part).lower()
    for sign, name in _HYPERVISORS:
        if sign in said:
            return name
    return None if flags is None else "hypervisor"


def records(root: Path) -> list[dict[str, str]]:
    """All of /proc/cpuinfo, a map for each CPU; a dear read on a big machine."""
    text = head(f"{root}/proc/cpuinfo", ALL_RECORDS) or ""
    return [fields for block in text.split("\n\n") if (fields := _fields(block))]


def _first_record(root: Path) -> dict[str, str]:
    text = head(f"{root}/proc/cpuinfo", FIRST_RECORD) or ""
    return _fields(text.lstrip("\n").partition("\n\n")[0])


def _fields(block: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in block.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _line(path: str) -> str | None:
    """A name that will stand on a terminal: the first line, printable, of sane length."""
    content = text(path)
    return (_clean(content.strip().partition("\n")[0]) or None) if content else None


def _clean(name: str) -> str:
    printable = "".join(c for c in name if c.isprintable() and c != "\ufffd")
    return " ".join(printable.split())[:256]


# --- small files ----------------------------------------------------------------------------------


def text(path: str, limit: int = SMALL) -> str | None:
    """A small file, or None if it cannot be read or is longer: half a list is not a list."""
    content = head(path, limit + 1)
    return None if content is None or len(content) > limit else content


def head(path: str, limit: int) -> str | None:
    """The first bytes of a file. Thousands are read: no Path objects."""
    chunks = []
    try:
        # NONBLOCK: under --sysroot a fifo may stand where a file is expected.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            while limit > 0 and (chunk := os.read(fd, limit)):
                chunks.append(chunk)
                limit -= len(chunk)
        finally:
            os.close(fd)
    except OSError:
        return None
    return b"".join(chunks).decode("utf-8", "replace")


def number(path: str) -> int | None:
    return natural(text(path))


def natural(content: str | None) -> int | None:
    """Not negative: -1 is how firmware says that it does not know."""
    match = re.fullmatch(r"\s*([0-9]{1,10})\s*", content or "")
    return int(match[1]) if match else None


def cpus(path: str) -> list[int]:
    """The CPUs of a list; none if it is missing or garbled."""
    content = text(path)
    try:
        return cpulist.parse(content) if content else []
    except ValueError:
        return []


def numbered(directory: str, prefix: str) -> list[int]:
    """The numbers n of the entries `prefix`n of a directory, ascending."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - a Path per name, a thousand times
    except OSError:
        return []
    pattern = re.compile(prefix + "([0-9]{1,5})")
    return sorted({int(match[1]) for name in names if (match := pattern.fullmatch(name))})
