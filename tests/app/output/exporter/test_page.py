"""The metrics page, parsed by Prometheus' own client library."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import edge_cases
import pytest
from exporter_page import families, make_page, series, series_named, shown_series
from exports import messages
from sessions import one_by_one

from perfprobe import wire
from perftop.output.export.exporter_page import Detail, Page
from perftop.session.session import Session
from perftop.session.values import UNREAD_REASON

LABELS = {
    "perftop_smt_seconds": {"package", "state"},
    "perftop_cpu_seconds": {"package", "mode"},
    "perftop_cycles": {"package", "ring"},
    "perftop_instructions": {"package", "ring"},
    "perftop_reference_cycles": {"package", "ring"},
    "perftop_below_ceiling_seconds": {"package", "cause"},
    "perftop_below_ceiling_cycles": {"package", "cause"},
    "perftop_episodes": {"package", "kind", "cause"},
    "perftop_episode_seconds": {"package", "kind", "cause"},
    "perftop_task_wait_seconds": {"package"},
    "perftop_ceiling_hertz": {"package"},
    "perftop_base_hertz": {"package"},
    "perftop_power_limit_watts": {"package"},
    "perftop_temperature_celsius": {"package"},
    "perftop_energy_joules": {"package"},
    "perftop_dram_energy_joules": {"package"},
    "perftop_memory_bytes": {"package", "direction"},
    "perftop_suspect_samples": {"reason"},
    "perftop_lost_samples": set(),
    "perftop_probe_cpu_seconds": set(),
    "perftop_exporter_cpu_seconds": set(),
    "perftop_tsc_hertz": set(),
    "perftop_missing": {"what", "why"},
    "perftop_series": set(),
    "perftop": {"version", "model", "source", "smt_method"},
}
"""Label names, a stable interface."""


def with_fields(hello: wire.Message, **fields: Any) -> wire.Hello:
    assert isinstance(hello, wire.Hello)
    return dataclasses.replace(hello, **fields)


@pytest.fixture(scope="module")
def story() -> list[wire.Message]:
    return messages("turbo-drop,cpus=16", 20)


def test_names_labels_and_types_are_stable(story: list[wire.Message]) -> None:
    results = {
        metric.name: metric for metric in families(make_page(story)[1].text(openmetrics=True))
    }
    labels = {
        name: {*metric.samples[0].labels} for name, metric in results.items() if metric.samples
    }
    assert labels == LABELS
    for name, metric in results.items():
        counts = any(sample.name.endswith("_total") for sample in metric.samples)
        assert metric.type == ("info" if name == "perftop" else "counter" if counts else "gauge")
        assert metric.documentation


@pytest.mark.parametrize("detail", get_args(Detail))
@pytest.mark.parametrize("spec", ["smt-mix,cpus=16", "guest", "hybrid,cpus=8", "steady,smt=4"])
def test_both_formats_have_the_same_values(spec: str, detail: Detail) -> None:
    _, page = make_page(messages(spec, 3, 500_000_000), detail)
    first = series(page.text(openmetrics=True))
    second = series(page.text(openmetrics=False), openmetrics=False)
    own = ("perftop_exporter_cpu_seconds_total",)
    assert {**first, own: 0.0} == {**second, own: 0.0}
    assert first["perftop_series",] == len(first) == page.series


@pytest.mark.parametrize(("packages", "max_series"), [(1, 60), (2, 95)])
def test_the_number_of_series_does_not_depend_on_the_number_of_cpus(
    packages: int, max_series: int
) -> None:
    _, page = make_page(messages(f"turbo-drop,cpus=64,packages={packages}", 20, 10**9))
    assert page.series < max_series


def test_each_package_has_the_time_of_its_cpus() -> None:
    screen = shown_series(make_page(messages("smt-mix,cpus=8,packages=2", 3))[1])
    seconds: dict[str, float] = {}
    for (_, package), value in series_named(screen, "perftop_cpu_seconds_total"):
        seconds[package] = seconds.get(package, 0.0) + value
    assert seconds == pytest.approx({"0": 4 * 3.0, "1": 4 * 3.0}, rel=0.05)


def test_only_the_selected_cpus_are_printed() -> None:
    hello, *frames = messages("smt-mix,cpus=8", 3)
    screen = shown_series(make_page([with_fields(hello, selected=[1, 5]), *frames], "cpu")[1])
    assert {labels[0] for labels, _ in series_named(screen, "perftop_cpu_seconds_total")} == {
        "1",
        "5",
    }
    assert {labels[0] for labels, _ in series_named(screen, "perftop_smt_seconds_total")} == {"1"}


def test_missing_families_of_a_vm_have_a_reason() -> None:
    _, page = make_page(messages("guest", 3))
    screen = shown_series(page)
    names = {name for name, *_ in screen}
    assert not names & {"perftop_cycles_total", "perftop_energy_joules_total",
                        "perftop_ceiling_hertz", "perftop_below_ceiling_seconds_total"}  # fmt: skip
    missing = {labels[0]: labels[1] for labels, value in series_named(screen, "perftop_missing")}
    assert "no core PMU in this guest" in missing["perftop_cycles_total:all"]
    assert "perftop_reference_cycles_total" in missing, "it has no other ring"
    assert {"perftop_cpu_seconds_total:involuntary_halt", "perftop_energy_joules_total",
            "perftop_below_ceiling_seconds_total"} <= {*missing}  # fmt: skip
    assert all(missing.values())
    modes = {labels[0] for labels, _ in series_named(screen, "perftop_cpu_seconds_total")}
    assert modes == {"busy", "idle", "steal"}


def test_the_time_below_the_ceiling_is_unknown_without_a_clock() -> None:
    """A value of 0 would mean that no core was ever below its ceiling."""
    hello, *frames = messages("turbo-drop,cpus=4", 2)
    assert isinstance(hello, wire.Hello)
    blocks = [
        dataclasses.replace(block, counters=[
            dataclasses.replace(c, key=f"not_{c.key}") if c.key in {"cycles", "aperf"} else c
            for c in block.counters
        ])
        for block in hello.blocks
    ]  # fmt: skip
    screen = shown_series(make_page([with_fields(hello, blocks=blocks), *frames])[1])
    assert ("perftop_ceiling_hertz", "0") in screen
    assert not [*series_named(screen, "perftop_below_ceiling_seconds_total")]
    assert ("perftop_missing", "perftop_below_ceiling_seconds_total") in {k[:2] for k in screen}


@pytest.mark.parametrize(("seconds", "missing"), [(1, False), (4, True)])
def test_a_number_is_not_called_missing_before_its_first_read(
    seconds: float, missing: bool
) -> None:
    """No scan of tasks comes in this stream."""
    hello, *rest = messages("guest", seconds)
    frames = [dataclasses.replace(m, records={}) for m in rest if isinstance(m, wire.Frame)]
    screen = shown_series(make_page([hello, *frames])[1])
    row = "perftop_missing", "perftop_task_wait_seconds_total", UNREAD_REASON
    assert (row in screen) is missing


def test_owners_are_exported_on_request() -> None:
    greeting, *rest = messages("demo,cpus=8", 10)
    assert isinstance(greeting, wire.Hello)
    session = Session(greeting)
    page = Page(session, owners=True)
    for _ in one_by_one(session, rest):
        page.add_sample(session.now_ns)
    owner_s = {k[1:]: s for k, s in series(page.text(openmetrics=True)).items()
               if k[0] == "perftop_owner_cpu_seconds_total"}  # fmt: skip
    assert owner_s["nginx.service", "run"] > 0.1


def test_names_of_programs_are_never_exported() -> None:
    """They appear neither as tasks nor in the probe's reasons for missing values."""
    given = messages("demo,cpus=8", 40)
    names = {
        str(task[1])
        for message in given if isinstance(message, wire.Frame)
        for task in message.records.get("tasks", {}).values()
    }  # fmt: skip
    assert len(names) > 3
    text = make_page(given, "cpu")[1].text(openmetrics=True).decode()
    assert not [name for name in names if name in text]
    hello, printed = edge_cases.messages()
    missing = [wire.Missing("energy_j", 'in use by "secret\\job"\nsince boot')]
    missing.append(wire.Missing("smt", "no core PMU"))
    blocks = [block for block in hello.blocks if block.scope != "package"]
    stripped = [
        wire.Frame(m.seq, m.time_ns, {k: v for k, v in m.blocks.items() if k != "package"})
        for m in printed if isinstance(m, wire.Frame)
    ]  # fmt: skip
    hello = with_fields(hello, missing=missing, blocks=blocks)
    screen = shown_series(make_page([hello, *stripped])[1])
    assert screen["perftop_missing", "perftop_energy_joules_total",
                 "in use by a program\nsince boot"] == 1  # fmt: skip
    before_frames = shown_series(make_page([hello])[1])
    assert before_frames["perftop_missing", "perftop_smt_seconds_total", "no core PMU"] == 1
