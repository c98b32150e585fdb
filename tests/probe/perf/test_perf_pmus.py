"""PMUs and their events from sysfs; CPUID executed on a given CPU."""

from __future__ import annotations

import os
from pathlib import Path

import fakeperf
import pytest
import trees
from fakeperf import DEVICES

from perfprobe.cpu import cpuid, identity
from perfprobe.native import affinity
from perfprobe.perf import perf_pmus
from perfprobe.perf.perf_pmus import ConfigWords

# --- PMUs and their events ------------------------------------------------------------------------


def test_events_of_a_pmu_are_found_by_name(tmp_path: Path) -> None:
    fakeperf.write_pmu(tmp_path, "msr", 9)
    fakeperf.write_events(tmp_path, "msr", tsc=0, aperf=1, smi=4)
    result = perf_pmus.find_pmu(tmp_path, "msr")
    assert result is not None
    assert (result.type, result.cpus) == (9, None)
    codes = [perf_pmus.event_config(result, name) for name in ("tsc", "smi", "pperf")]
    assert codes == [0, 4, None]
    assert perf_pmus.find_pmu(tmp_path, "power") is None


def test_terms_are_placed_by_the_format(tmp_path: Path) -> None:
    fakeperf.write_pmu(tmp_path, "p", 9)
    at = f"{DEVICES}/p"
    for name, text in {
        "event": "config:0-7,32-35",
        "umask": "config:8-15",
        "any": "config:21",
        "far": "config1:0-3",
        "further": "config2:4-7,0-3",
        "wild": "config:64",
    }.items():
        trees.put(tmp_path, f"{at}/format/{name}", text + "\n")
    result = perf_pmus.find_pmu(tmp_path, "p")
    assert result is not None
    for text, expected in {
        "event=0x120,umask=0x01": 0x1_0000_0120,
        "event=0x3c,umask=1,any": 0x20013C,
        "event=0x3c,umask=0x1,any=1": 0x20013C,
        "event=0x1000": None,
        "far=1": None,
        "wild=1": None,
        "event=x": None,
        "nobody=1": None,
        "": None,
    }.items():
        trees.put(tmp_path, f"{at}/events/e", text + "\n")
        assert perf_pmus.event_config(result, "e") == expected, text
    for text, words in {
        "event=1,far=0x5,further=0x21": ConfigWords(1, 5, 0x21),
        "config1=0xffffffffffffffff": ConfigWords(0, 2**64 - 1),
        "config1=18446744073709551616": None,
        "far=0x10": None,
        "event=0x1_0": None,
    }.items():
        trees.put(tmp_path, f"{at}/events/e", text + "\n")
        assert perf_pmus.event_code(result, "e") == words, text
    trees.put(tmp_path, f"{at}/events/e.unit", "Joules\n")
    assert perf_pmus.event_unit(result, "e") == "Joules"
    assert perf_pmus.event_unit(result, "none") == "1"
    trees.put(tmp_path, f"{at}/events/e.scale", "2.3283064365386962890625e-10\n")
    assert perf_pmus.event_scale(result, "e") == 2**-32
    for text, scale in {"zero": 1, "1e-18": 1e-18, "9e-19": 1, "9e11": 9e11, "1e12": 1}.items():
        trees.put(tmp_path, f"{at}/events/e.scale", f"{text}\n")
        assert perf_pmus.event_scale(result, "e") == scale


# --- CPUID ----------------------------------------------------------------------------------------


def test_cpuid_is_executed_on_its_cpu() -> None:
    cpu = min(os.sched_getaffinity(0))
    executed = affinity.leaves_from_cpuid_instruction(cpu)
    read = executed(0)
    if read is None:
        pytest.skip("no CPUID on this architecture")
    before = os.sched_getaffinity(0)
    assert cpuid.vendor(executed) == identity.read_identity().vendor
    assert os.sched_getaffinity(0) == before
    device = cpuid.leaves_from_driver(Path("/"), cpu)
    if device(0) is not None:
        assert device(1) is not None
        assert executed(0) == device(0)
        assert executed(7, 0) == device(7, 0)
    assert affinity.leaves_from_cpuid_instruction(5000)(0) is None
