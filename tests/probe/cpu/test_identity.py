from __future__ import annotations

from pathlib import Path

import pytest
import trees
from roots import DATA

from perfprobe.cpu import files, identity
from perfprobe.wire import Identity

GUEST = DATA / "guest-epyc-2cpu"

INTEL = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R)   Platinum 8480+
stepping\t: 8
microcode\t: 0x2b000603
flags\t\t: fpu vme tsc msr{flag}

processor\t: 1
vendor_id\t: Other
model\t\t: 1
"""


def write_cpuinfo(root: Path, flag: str = "") -> None:
    trees.put(root, "proc/cpuinfo", INTEL.format(flag=flag))


def test_an_intel_cpu_is_identified_from_cpuinfo(tmp_path: Path) -> None:
    write_cpuinfo(tmp_path)
    name = "Intel(R) Xeon(R) Platinum 8480+"
    assert identity.read_identity(tmp_path) == Identity(
        "GenuineIntel", 6, 143, 8, name, "0x2b000603"
    )


def test_a_captured_guest_is_identified() -> None:
    assert identity.read_identity(GUEST) == Identity("AuthenticAMD", 25, 17, 1, "AMD EPYC", "0x0")
    assert identity.virtualisation(GUEST) == "hypervisor"
    assert identity.hostname(GUEST) == "guest"
    assert identity.kernel_release(GUEST) == "6.18.44"
    assert identity.boot_id(GUEST) is None


@pytest.mark.parametrize(("size", "limit", "is_read"), [
    (65_536, files.MAX_BYTES, True), (65_537, files.MAX_BYTES, False),
    (200_000, files.MAX_LARGE_BYTES, True), (5000, 5000, True), (5001, 5000, False),
])  # fmt: skip
def test_a_file_is_read_up_to_its_limit(
    tmp_path: Path, size: int, limit: int, is_read: bool
) -> None:
    path = tmp_path / "file"
    path.write_text("x" * size)
    opened = files.OpenFile(str(path), limit)
    content = "x" * size if is_read else ""
    assert (files.read_text(str(path), limit), opened.read()) == (content, content)
    assert files.read_head(str(path), 4000) == "x" * 4000
    opened.close()


def test_arm_and_power_cpus_are_identified(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n\n")
    assert identity.read_identity(tmp_path) == Identity(vendor="0x41")
    trees.put(tmp_path, "proc/cpuinfo", "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n\n")
    assert identity.read_identity(tmp_path) == Identity(name="POWER9, altivec supported")


def test_missing_fields_of_the_first_cpu_are_not_taken_from_the_second(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/cpuinfo", "\nprocessor: 0\n\nprocessor: 1\nmodel name: other\n")
    assert identity.read_identity(tmp_path) == Identity()


def test_records_of_cpuinfo_without_a_valid_cpu_number_are_left_out(tmp_path: Path) -> None:
    records = "processor: 65535\ncore id: 7\n\nprocessor: 65536\n\nprocessor: -1\n\ncore id: 2\n"
    trees.put(tmp_path, "proc/cpuinfo", records)
    assert identity.cpu_ids(tmp_path) == [(65535, None, 7)]


@pytest.mark.parametrize(("content", "expected"), [
    (None, Identity()),
    (b"", Identity()),
    (b"\xff\xfe\x00: :\n::\n", Identity()),
    (b"vendor_id : \x1b[31mIntel\xff\ncpu family : six\nmodel : -1\n", Identity("[31mIntel")),
    (b"model name : " + b"x" * 100_000, Identity(name="x" * 256)),
])  # fmt: skip
def test_garbled_fields_of_cpuinfo_are_unknown(
    tmp_path: Path, content: bytes | None, expected: Identity
) -> None:
    if content is not None:
        trees.put(tmp_path, "proc/cpuinfo", content)
    assert identity.read_identity(tmp_path) == expected


@pytest.mark.parametrize(("vendor", "product", "name"), [
    ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "QEMU"),
    ("Red Hat", "KVM", "KVM"),
    ("VMware, Inc.", "VMware Virtual Platform", "VMware"),
    ("Microsoft Corporation", "Virtual Machine", "Hyper-V"),
    ("Amazon EC2", "m5.large", "Amazon EC2"),
    ("Google", "Google Compute Engine", "Google"),
    ("Xen", "HVM domU", "Xen"),
    ("Somebody", "Something", "hypervisor"),
    (None, None, "hypervisor"),
])  # fmt: skip
def test_virtualisation_is_named_by_dmi_only_in_a_guest(
    tmp_path: Path, vendor: str | None, product: str | None, name: str
) -> None:
    for file, text in (("sys_vendor", vendor), ("product_name", product)):
        if text is not None:
            trees.put(tmp_path, f"sys/class/dmi/id/{file}", text + "\n")
    write_cpuinfo(tmp_path, " hypervisor")
    assert identity.virtualisation(tmp_path) == name
    write_cpuinfo(tmp_path)
    # a bare-metal EC2 machine has the same DMI texts
    assert identity.virtualisation(tmp_path) is None


def test_xen_is_detected_from_sys_hypervisor(tmp_path: Path) -> None:
    write_cpuinfo(tmp_path)
    trees.put(tmp_path, "sys/hypervisor/type", "xen\n")
    assert identity.virtualisation(tmp_path) == "Xen"


def test_names_are_safe_for_a_terminal(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/sys/kernel/hostname", b"no\x1bde\xff1\nsecond\n")
    trees.put(tmp_path, "proc/sys/kernel/osrelease", b"6.8.0-31-generic\n")
    trees.put(tmp_path, "proc/sys/kernel/random/boot_id", b"1b4e28ba-2fa1-11d2-883f\n")
    assert identity.hostname(tmp_path) == "node1"
    assert identity.kernel_release(tmp_path) == "6.8.0-31-generic"
    assert identity.boot_id(tmp_path) == "1b4e28ba-2fa1-11d2-883f"
