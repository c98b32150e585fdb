"""A real Prometheus scrapes a real exporter, both on loopback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from scraping import exporter, start_prometheus
from waiting import wait


def test_prometheus_has_every_series_and_takes_the_rules(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    source = "--source", "sim:smt-mix,cpus=4", "--sample", "200ms"
    with (
        exporter(*source, "--listen", "127.0.0.1:0") as running,
        start_prometheus(running.where.partition("/")[0], tmp_path) as prometheus,
    ):
        wait(lambda: prometheus.value("up") == 1, "a scrape")
        every = 'count({__name__=~"perftop_.+"}) == on() perftop_series'
        wait(lambda: prometheus.value(every), "as many series as the exporter tells")
        types = {row["metric"]: row["type"] for row in prometheus.get("targets/metadata")}
        assert types["perftop_smt_seconds"] == "counter"  # the older form has it with _total
        wait(lambda: prometheus.value("sum(instance:perftop_smt:ratio_rate5m)"), "a rule")
        whole = prometheus.value("sum(instance:perftop_smt:ratio_rate5m)")
        assert whole == pytest.approx(1)
        rules = prometheus.get("rules")["groups"]
        assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}
