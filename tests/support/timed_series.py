"""OpenMetrics with times, read by the parser of Prometheus' own client library."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample, Timestamp


def families(data: bytes) -> Iterator[Metric]:
    found: Iterator[Metric] = text_string_to_metric_families(data.decode())  # type: ignore[no-untyped-call]
    return found


def unix_s(sample: Sample) -> float:
    assert isinstance(sample.timestamp, float | Timestamp)
    return float(sample.timestamp)


def by_name(data: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], list[Sample]]]:
    """By sample name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], list[Sample]]] = {}
    for family in families(data):
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {}).setdefault(key, []).append(sample)
    return found
