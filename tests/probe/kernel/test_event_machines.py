"""What the same words choose on five machines, by the formats that their kernels show."""

from __future__ import annotations

from pathlib import Path

import pmu_formats
import pytest

from perfprobe.kernel.event_catalogue import Catalogue
from perfprobe.kernel.event_names import parse

OFFCORE = "cpu/event=0xb7,umask=0x1,offcore_rsp=0x3fbfc00001/"


def words(root: Path, text: str) -> dict[str | None, tuple[int, int, int]]:
    """Type, config and config1 by PMU."""
    found = Catalogue(root).find(parse(text)[0][0])
    return {pmu: (e.type, e.config, e.config1) for pmu, e in found.events.items()}


@pytest.mark.parametrize(("machine", "text", "expected"), [
    ("skylake-sp", "cpu/event=0x3c,umask=0x0,any=1/", {"cpu": (4, 0x20003C, 0)}),
    ("skylake-sp", OFFCORE, {"cpu": (4, 0x1B7, 0x3FBFC00001)}),
    ("skylake-sp", "cpu/event=0xc6,umask=0x1,frontend=0x400206/", {"cpu": (4, 0x1C6, 0x400206)}),
    ("skylake-sp", "cpu/event=0xa3,umask=0x14,cmask=20/", {"cpu": (4, 0x140014A3, 0)}),
    ("skylake-sp", "mem-loads", {"cpu": (4, 0x1CD, 3)}),
    ("skylake-sp", "cpu/mem-loads,ldlat=30/", {"cpu": (4, 0x1CD, 30)}),
    ("ice-lake-sp", "topdown-be-bound", {"cpu": (4, 0x8300, 0)}),
    ("sapphire-rapids", "topdown-mem-bound", {"cpu": (4, 0x8700, 0)}),
    ("sapphire-rapids", "branch-misses", {"cpu": (0, 5, 0)}),
    ("alder-lake", "branch-misses", {"cpu_core": (0, 4 << 32 | 5, 0),
                                     "cpu_atom": (0, 10 << 32 | 5, 0)}),
    ("alder-lake", "topdown-retiring", {"cpu_core": (4, 0x8000, 0), "cpu_atom": (10, 0xC2, 0)}),
    ("alder-lake", "slots", {"cpu_core": (4, 0x400, 0)}),
    ("alder-lake", "cpu_atom/event=0xd0,umask=0x5,ldlat=0x80/", {"cpu_atom": (10, 0x5D0, 0x80)}),
    ("alder-lake", "r4c4", {"cpu_core": (4, 0x4C4, 0), "cpu_atom": (10, 0x4C4, 0)}),
    ("alder-lake", "L1-dcache-load-misses", {"cpu_core": (3, 4 << 32 | 0x10000, 0),
                                             "cpu_atom": (3, 10 << 32 | 0x10000, 0)}),
    ("zen-4", "cpu/event=0x1a0,umask=0x60/", {"cpu": (4, 0x1000060A0, 0)}),
    ("zen-4", "LLC-loads", {"cpu": (3, 2, 0)}),
])  # fmt: skip
def test_what_is_chosen(
    tmp_path: Path, machine: str, text: str, expected: dict[str, tuple[int, int, int]]
) -> None:
    pmu_formats.written(tmp_path, machine)
    assert words(tmp_path, text) == expected


@pytest.mark.parametrize(("machine", "text", "told"), [
    ("ice-lake-sp", "cpu/event=0x3c,any=1/", "no term 'any'"),
    ("zen-4", "cpu/event=0xb7,offcore_rsp=1/", "no term 'offcore_rsp'"),
    ("zen-4", "cpu/event=0x10a0f/", "does not fit into its 12 bits"),
    ("alder-lake", "cpu/event=0x3c/", "no PMU 'cpu'; there are: cpu_atom, cpu_core"),
    ("skylake-sp", "topdown-retirng", "no event of that name"),
    ("sapphire-rapids", "topdown-retirng", "nearest: topdown-retiring"),
])  # fmt: skip
def test_what_a_machine_lacks(tmp_path: Path, machine: str, text: str, told: str) -> None:
    pmu_formats.written(tmp_path, machine)
    with pytest.raises(ValueError, match=told):
        words(tmp_path, text)
