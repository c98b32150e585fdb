"""Reads the names of the host, its kernel, CPU model and hypervisor, below `root`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from perfprobe.cpu import cpu_sets
from perfprobe.cpu.files import MAX_LARGE_BYTES, parse_natural, read_head, read_text, read_word
from perfprobe.wire import Identity

MAX_RECORD_BYTES = 1 << 14  # bytes of /proc/cpuinfo for the first CPU; today's CPUs need 2 KiB

# Substrings of the DMI vendor and product, and the hypervisor that each indicates; the first match
# wins. Cloud providers come first, because their DMI strings may also name KVM.
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
    """Returns the host name; empty where it cannot be read."""
    return _first_line(f"{root}/proc/sys/kernel/hostname") or ""


def kernel_release(root: Path = Path("/")) -> str:
    """Returns the kernel's release, such as "6.1.0-28-amd64"; empty where it cannot be read."""
    return _first_line(f"{root}/proc/sys/kernel/osrelease") or ""


def is_in_user_namespace(root: Path = Path("/")) -> bool:
    """Returns whether this process is in a user namespace of its own (`unshare -U`, rootless
    containers), where root and capabilities give no access to the hardware."""
    uid_map = read_text(f"{root}/proc/self/uid_map").split()
    return bool(uid_map) and uid_map != ["0", "0", "4294967295"]


def boot_id(root: Path = Path("/")) -> str | None:
    return _first_line(f"{root}/proc/sys/kernel/random/boot_id")


def clocksource(root: Path = Path("/")) -> str | None:
    return _first_line(f"{root}/sys/devices/system/clocksource/clocksource0/current_clocksource")


def read_identity(root: Path = Path("/")) -> Identity:
    """Returns the first CPU's identity; all core types of a hybrid have its family and model."""
    fields = _first_record(root)
    return Identity(
        vendor=_clean_name(fields.get("vendor_id") or fields.get("CPU implementer", "")),
        family=parse_natural(fields.get("cpu family")),
        model=parse_natural(fields.get("model")),
        stepping=parse_natural(fields.get("stepping")),
        name=_clean_name(fields.get("model name") or fields.get("cpu", "")),
        microcode=_clean_name(fields.get("microcode", "")) or None,
    )


def machine_names(root: Path = Path("/")) -> dict[str, str | None]:
    """Returns the names at the beginning of the JSON output of several commands."""
    return {
        "host": hostname(root),
        "model": read_identity(root).name or None,
        "kernel": kernel_release(root),
        "virtualisation": virtualisation(root),
    }


def virtualisation(root: Path = Path("/")) -> str | None:
    """Returns the hypervisor's name; "hypervisor" if its name is hidden; None on bare metal. The
    CPU flag "hypervisor" decides whether there is one. DMI only gives the name, because a
    bare-metal EC2 machine also has "Amazon EC2" in DMI. /sys/hypervisor exists only under Xen."""
    kind = _first_line(f"{root}/sys/hypervisor/type")
    if kind:
        return "Xen" if kind.lower() == "xen" else kind
    own_flags = cpu_flags(root)
    if own_flags is not None and "hypervisor" not in own_flags:
        return None
    dmi = [
        _first_line(f"{root}/sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")
    ]
    dmi_text = " ".join(line for line in dmi if line).lower()
    for words, name in _HYPERVISORS:
        if words in dmi_text:
            return name
    return None if own_flags is None else "hypervisor"


KVM_MODULES = ("kvm_intel", "kvm_amd")


@lru_cache
def may_run_guests(root: Path) -> bool:
    """Returns whether KVM may run guests here. If so, perf events must exclude guests: a KVM that
    passes the PMU through refuses to start a guest while a host event includes guests. /dev/kvm
    also exists if the module is loaded on demand; a container may lack it."""
    parameters = (f"{root}/sys/module/{module}/parameters" for module in ("kvm", *KVM_MODULES))
    return (root / "dev/kvm").exists() or any(
        read_word(f"{path}/enable_mediated_pmu") in {"Y", "y", "1"} for path in parameters
    )


def cpu_flags(root: Path = Path("/")) -> list[str] | None:
    """Returns the flags of the first CPU in /proc/cpuinfo; None if the file has none."""
    features = _first_record(root).get("flags")
    return None if features is None else features.split()


def cpu_ids(root: Path) -> list[tuple[int, int | None, int | None]]:
    """Returns the CPU, package and core of each record in /proc/cpuinfo. The read is slow on a big
    machine."""
    text = read_head(f"{root}/proc/cpuinfo", MAX_LARGE_BYTES)
    ids = []
    for fields in map(_parse_fields, text.split("\n\n")):
        names = ("processor", "physical id", "core id")
        cpu, package, core = (parse_natural(fields.get(name)) for name in names)
        if cpu is not None and cpu < cpu_sets.MAX_CPU:
            ids.append((cpu, package, core))
    return ids


def _first_record(root: Path) -> dict[str, str]:
    text = read_head(f"{root}/proc/cpuinfo", MAX_RECORD_BYTES)
    return _parse_fields(text.lstrip("\n").partition("\n\n")[0])


def _parse_fields(block: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in block.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _first_line(path: str) -> str | None:
    """Returns a file's first line, printable and at most 256 characters long; None if empty."""
    return _clean_name(read_word(path).partition("\n")[0]) or None


def _clean_name(name: str) -> str:
    printable = "".join(c for c in name if c.isprintable() and c != "\ufffd")
    return " ".join(printable.split())[:256]
