"""A recording as OpenMetrics, read by the parser of Prometheus' own client library."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import made
from exported import counted, export, record
from scraped import by_name, families, unix_s

from perfprobe import wire


def test_openmetrics_equals_json_lines(recording: Path) -> None:
    series = by_name(export(recording, "openmetrics"))
    lines = [json.loads(line) for line in export(recording, "jsonl").splitlines()]
    intervals = [line for line in lines if line["type"] == "interval"]
    place = {"core": "1", "cpu": "3", "package": "0", "host": "sim"}
    util = series["perftop_util_ratio"][tuple(sorted(place.items()))]
    wanted = [(i["time"], i["cpus"][3]["util"]) for i in intervals]
    assert [(unix_s(s), s.value) for s in util] == [w for w in wanted if w[1] is not None]
    power = series["perftop_machine_power_watts"][(("host", "sim"),)]
    assert [s.value for s in power] == [i["machine"]["power_w"] for i in intervals]
    cycles = series["perftop_cycles_total"][tuple(sorted(place.items()))]
    moved = [i["cpus"][3]["counts"]["cycles"] for i in intervals]
    assert cycles[-1].value == sum(moved)
    assert all(a.value <= b.value for a, b in pairwise(cycles))


def test_a_counter_that_is_not_known_for_a_while_has_no_samples_then(tmp_path: Path) -> None:
    """CPU 1 is off in the second of four seconds; the third lacks a sample."""
    greeting = made.hello([made.REF], threads=1, cores=2)
    found: list[wire.Message] = [greeting]
    for seq in range(41):
        ref = [seq * 10**7, None if 11 <= seq <= 20 else seq * 10**7]
        found.append(made.frame(greeting, seq, {"ref": ref}))
    path = record(tmp_path / "recording", found)
    data = export(path, "openmetrics", every_ns=10**9, metrics=["ref_count"])
    series = by_name(data)["perftop_ref_total"]
    zero = greeting.wall_ns / 1e9
    printed = {
        dict(key)["cpu"]: [(round(unix_s(s) - zero), s.value) for s in samples]
        for key, samples in series.items()
    }
    assert printed["0"] == [(1, 1e8), (2, 2e8), (3, 3e8), (4, 4e8)]
    assert printed["1"] == [(1, 1e8), (4, 2e8)]


def test_openmetrics_names_its_units(recording: Path) -> None:
    text = export(recording, "openmetrics").decode()
    assert text.endswith("\n# EOF\n")
    for family in families(text.encode()):
        assert family.documentation
        assert not family.unit or family.name.endswith(f"_{family.unit}")
        assert family.type in {"gauge", "counter", "info"}
        assert all(math.isfinite(sample.value) for sample in family.samples)
    assert "# UNIT perftop_busy_hertz hertz" in text


def test_labels_may_hold_anything(tmp_path: Path) -> None:
    identity = wire.Identity(name='the "best"\nof\\all')
    path = record(tmp_path / "recording", counted(identity=identity))
    (labels,) = by_name(export(path, "openmetrics"))["perftop_info"]
    assert dict(labels)["model"] == 'the "best"\nof\\all'
