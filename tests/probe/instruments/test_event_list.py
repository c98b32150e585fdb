"""What `perfprobe events` tells of a machine, from its files."""

from __future__ import annotations

from pathlib import Path

import fakeperf
import trees

from perfprobe.kernel import event_catalogue


def test_a_hybrid_lists_each_core_type(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/sys/kernel/nmi_watchdog", "1\n")
    for name, number, cpus in (("cpu_core", 4, "0-3"), ("cpu_atom", 10, "4-7")):
        fakeperf.pmu(tmp_path, name, number, cpus)
    fakeperf.events(tmp_path, "cpu_core", slots=4)
    trees.put(tmp_path, f"{fakeperf.DEVICES}/cpu_core/events/slots.scale", "0.5\n")
    trees.put(tmp_path, f"{fakeperf.DEVICES}/cpu_core/events/broken", "thresh=?\n")
    answer = event_catalogue.list_events(tmp_path, None)
    rows = {(row["pmu"], row["name"]): row for row in answer["events"]}
    assert [(p["pmu"], p["type"], p["cpus"]) for p in answer["pmus"]] == [
        ("cpu_core", "P", "0-3"), ("cpu_atom", "E", "4-7"),
    ]  # fmt: skip
    assert rows["cpu_core", "slots"]["scale"] == 0.5
    assert ("cpu_atom", "slots") not in rows
    assert ("cpu_core", "broken") not in rows
    assert rows["cpu_atom", "cycles"]["open"] == ["perftop", "NMI watchdog"]
    assert rows["software", "page-faults"]["open"] == []
    assert answer["missing"] == []


def test_a_word_narrows_it(tmp_path: Path) -> None:
    answer = event_catalogue.list_events(tmp_path, "Another CPU")
    assert [row["name"] for row in answer["events"]] == ["cpu-migrations"]
    assert answer["missing"][0]["why"] == "the kernel offers no core PMU"
