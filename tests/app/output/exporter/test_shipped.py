"""Files shipped with the exporter, checked by the programs that use them; missing programs are
reported by name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from command import run_in_process
from exporter_page import make_page, shown_series
from exports import messages
from nightly import cases_by_day
from waiting import MAX_WAIT_S

from perftop import cli
from perftop.output.export.exporter_page import Detail
from perftop.verbs import record
from perftop.verbs.serve import SHIPPED_FILES, shipped_text

WORDS = re.compile(r"\bperftop_[a-z_]+")
INTERVAL = "$__rate_interval"
WAITS = {"perftop_task_wait_seconds_total", "perftop_owner_cpu_seconds_total",
         "perftop_pressure_seconds_total", "perftop_cpu_seconds_total"}  # fmt: skip
"""The counters that are also known without counters of the CPU."""
LIMIT = 2.0
"""Maximum exposure of the service, as rated by systemd from 0 to 10."""


def program(name: str) -> str:
    result = shutil.which(name)
    if result is None:
        pytest.skip(f"{name} is not installed")
    return result


def run(*command: str | Path, status: int = 0, **more: Any) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=MAX_WAIT_S, check=False, **more
    )
    assert result.returncode == status, result.stdout + result.stderr
    return str(result.stdout + result.stderr)


def expressions() -> Iterator[str]:
    """The expressions of the dashboard's panels."""
    for panel in json.loads(shipped_text("dashboard"))["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def samples() -> set[str]:
    """All sample names of the exporter."""
    pages = [
        make_page(messages("turbo-drop,cpus=4", 20)),
        make_page(messages("guest", 1)),
        make_page(messages("demo,cpus=8", 10), owners=True),
    ]
    return {name for _, page in pages for name, *_ in shown_series(page)}


# --- Prometheus


@pytest.mark.parametrize("detail", cases_by_day(get_args(Detail), ["cpu"]))
@pytest.mark.parametrize("spec", ["turbo-drop,cpus=8", "guest"])
def test_promtool_accepts_the_page(spec: str, detail: Detail) -> None:
    tool = program("promtool")
    text = make_page(messages(spec, 20), detail)[1].text(openmetrics=False).decode()
    assert run(tool, "check", "metrics", input=text) == ""


CASES = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'perftop_below_ceiling_seconds_total{instance="a",package="0",cause="power-pl1"}'
        values: '0+7x120'
      - series: 'perftop_below_ceiling_seconds_total{instance="b",package="0",cause="power-pl1"}'
        values: '0+5x120'
      - series: 'perftop_below_ceiling_seconds_total{instance="c",package="1",cause="policy"}'
        values: '0+60x120'
      - series: 'perftop_smt_seconds_total{instance="a",package="0",state="both"}'
        values: '0+30x120'
      - series: 'perftop_smt_seconds_total{instance="a",package="1",state="neither"}'
        values: '0+90x120'
      - series: 'perftop_cycles_total{instance="a",package="0",ring="all"}'
        values: '0+3000x120'
      - series: 'perftop_cycles_total{instance="a",package="0",ring="kernel"}'
        values: '0+900x120'
      - series: 'perftop_reference_cycles_total{instance="a",package="0",ring="all"}'
        values: '0+2000x120'
      - series: 'perftop_tsc_hertz{instance="a"}'
        values: '2000000000x120'
      - series: 'perftop_cpu_seconds_total{instance="a",package="0",mode="busy"}'
        values: '0+50x120'
      - series: 'perftop_cpu_seconds_total{instance="a",package="0",mode="steal"}'
        values: '0+10x120'
      - series: 'perftop_task_wait_seconds_total{instance="a",package="0"}'
        values: '0+5x120'
      - series: 'perftop_cpu_seconds_total{instance="b",package="0",mode="busy"}'
        values: '0+100x120'
      - series: 'perftop_task_wait_seconds_total{instance="b",package="0"}'
        values: '0+5x120'
      - series: 'perftop_cpu_seconds_total{instance="c",package="0",mode="busy"}'
        values: '0+3x120'
      - series: 'perftop_task_wait_seconds_total{instance="c",package="0"}'
        values: '0+2x120'
    promql_expr_test:
      - expr: instance:perftop_smt:ratio_rate5m
        eval_time: 30m
        exp_samples:
          - {labels: 'instance:perftop_smt:ratio_rate5m{instance="a",state="both"}', value: 0.25}
          - {labels: 'instance:perftop_smt:ratio_rate5m{instance="a",state="neither"}', value: 0.75}
      - expr: instance:perftop_clock_hertz:rate5m
        eval_time: 30m
        exp_samples:
          - {labels: 'instance:perftop_clock_hertz:rate5m{instance="a"}', value: 3000000000}
      - expr: round(instance:perftop_below_ceiling:ratio_rate5m{cause="policy"}, 0.001)
        eval_time: 30m
        exp_samples:
          - {labels: '{instance="c",cause="policy"}', value: 1}
    alert_rule_test:
      - alertname: PerftopBelowCeiling
        eval_time: 90m
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, package: 0, cause: power-pl1}
            exp_annotations:
              summary: Package 0 of a runs below its ceiling.
              description: >-
                In 11.67% of the last hour its clock was below what turbo allows. Cause: power-pl1.
      - alertname: PerftopSteal
        eval_time: 90m
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, mode: steal}
            exp_annotations:
              summary: The hypervisor of a runs others in place of its CPUs.
              description: For 16.67% of the time of all CPUs.
      - alertname: PerftopTasksWait
        eval_time: 90m
        exp_alerts:
          - exp_labels: {severity: warning, instance: a}
            exp_annotations:
              summary: Tasks on a wait for a CPU.
              description: For at least 9.091% of the time for which they ran or waited.
      - alertname: PerftopInvoluntaryHalts
        eval_time: 90m
        exp_alerts: []
"""


def test_the_alert_fires_for_a_package_below_its_ceiling_for_10_percent_of_the_time(
    tmp_path: Path,
) -> None:
    """Seven seconds a minute are 11.7 %; five are too few; configured limits raise no alert."""
    tool = program("promtool")
    (tmp_path / "rules.yml").write_text(shipped_text("rules"))
    (tmp_path / "cases.yml").write_text(CASES)
    assert "SUCCESS" in run(tool, "test", "rules", "cases.yml", cwd=tmp_path)


def test_the_dashboard_shows_what_is_known_without_counters() -> None:
    request = {word for each in expressions() for word in WORDS.findall(each)}
    assert request >= WAITS


def test_rules_and_dashboard_query_existing_families() -> None:
    there = samples()
    text = [shipped_text("rules").replace("instance:perftop_", "instance:"), *expressions()]
    request = {word for each in text for word in WORDS.findall(each)}
    assert len(request) > 10
    assert request <= there


# --- Grafana


def test_promtool_accepts_all_expressions_of_the_dashboard(tmp_path: Path) -> None:
    tool = program("promtool")
    rules = [
        {"record": f"a:b{i}", "expr": expression.replace(INTERVAL, "5m").replace("$instance", ".*")}
        for i, expression in enumerate(expressions())
    ]
    assert not [rule for rule in rules if "$" in rule["expr"]]
    path = tmp_path / "board.yml"
    path.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(tool, "check", "rules", path)


def test_the_dashboard_is_complete() -> None:
    """All panels have a position, a data source, and a rate window for any scrape interval."""
    board = json.loads(shipped_text("dashboard"))
    assert {board["title"], board["uid"]} == {"perftop"}
    variables = {each["name"] for each in board["templating"]["list"]}
    assert variables == {"datasource", "instance"}
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["title"]
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        cells = {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
        assert x + w <= 24
        assert not taken & cells
        taken |= cells
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for expression in expressions():
        assert 'instance=~"$instance"' in expression
        assert expression.count("rate(") == expression.count(f"[{INTERVAL}]")


# --- systemd


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A directory with both printed units. The service runs an existing program."""
    for name in ("unit", "socket", "recorder"):
        text = printed_file(name)
        path = tmp_path / SHIPPED_FILES[name]
        start = re.compile(r"^ExecStart=\S+/perftop (exporter|record .*)$", re.MULTILINE)
        assert start.search(text) or name == "socket"
        path.write_text(start.sub(r"ExecStart=/bin/true \1", text))
    return tmp_path


def printed_file(name: str) -> str:
    """A file as printed by the command."""
    words = ("record", "--print-unit") if name == "recorder" else ("exporter", f"--print-{name}")
    result = run_in_process(*words)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_systemd_accepts_the_units(units: Path) -> None:
    tool = program("systemd-analyze")
    names = "perftop.service", "perftop.socket", "perftop-record.service"
    assert run(tool, "verify", *(units / name for name in names)) == ""


@pytest.mark.parametrize("name", ["perftop.service", "perftop-record.service"])
def test_the_services_are_hardened(units: Path, name: str) -> None:
    tool = program("systemd-analyze")
    result = run(tool, "security", "--offline=true", units / name)
    (level,) = re.findall(rf"Overall exposure level for {re.escape(name)}: ([0-9.]+)", result)
    assert float(level) <= LIMIT


def test_the_recording_service_has_a_valid_command_line() -> None:
    (line,) = re.findall(r"^ExecStart=@PERFTOP@ (.*)$", shipped_text("recorder"), re.MULTILINE)
    options = cli._parse_arguments(line.split())
    assert (options.ring, options.max_size) == (600 * 10**9, 500 * 10**6)
    assert record.episode_kinds(options.on)


def test_the_service_has_only_the_capabilities_of_perf() -> None:
    text = shipped_text("unit")
    for name in ("AmbientCapabilities", "CapabilityBoundingSet"):
        assert f"\n{name}=CAP_PERFMON CAP_BPF\n" in text
    assert "\nDynamicUser=yes\n" in text


# --- package contents


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_shipped_files_are_printed_unchanged(name: str) -> None:
    report, ours = printed_file(name), shipped_text(name).split("@PERFTOP@")
    assert all(part in report for part in ours)
