"""Pages of the exporter, parsed by Prometheus' own client library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import parser
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as of_openmetrics
from prometheus_client.samples import Sample, Timestamp
from sessions import one_by_one

from perfprobe import wire
from perftop.output.export.exporter_page import Detail, Page
from perftop.session.session import Session

LATE_S = 6.0
"""Delay in s of the counters of episodes."""
Series = dict[tuple[str, ...], float]
"""Values by name and label values, in the order of the labels' names."""


def make_page(
    messages: Sequence[wire.Message],
    detail: Detail = "package",
    after_sample: Callable[[Page], None] | None = None,
    *,
    owners: bool = False,
) -> tuple[Session, Page]:
    """Returns a session and a page that has processed all messages; `after_sample` is called with
    the page after each sample."""
    assert isinstance(messages[0], wire.Hello)
    session = Session(messages[0])
    page, since_ns = Page(session, detail, owners=owners), -1
    for message in one_by_one(session, messages[1:]):
        if isinstance(message, wire.Frame):
            if since_ns >= 0:
                page.add_sample(since_ns)
            since_ns = message.time_ns
            if after_sample is not None:
                after_sample(page)
    return session, page


def families(text: bytes, *, openmetrics: bool = True) -> list[Metric]:
    parse = of_openmetrics if openmetrics else parser.text_string_to_metric_families
    return list(parse(text.decode()))


def series(text: bytes, *, openmetrics: bool = True) -> Series:
    results: Series = {}
    for metric in families(text, openmetrics=openmetrics):
        for sample in metric.samples:
            labels = [sample.labels[key] for key in sorted(sample.labels)]
            assert (sample.name, *labels) not in results, sample
            results[sample.name, *labels] = sample.value
    return results


def samples_by_name(data: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], list[Sample]]]:
    results: dict[str, dict[tuple[tuple[str, str], ...], list[Sample]]] = {}
    for family in families(data):
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            results.setdefault(sample.name, {}).setdefault(key, []).append(sample)
    return results


def unix_s(sample: Sample) -> float:
    assert isinstance(sample.timestamp, float | Timestamp)
    return float(sample.timestamp)


def shown_series(page: Page) -> Series:
    return series(page.text(openmetrics=True))


def series_named(result: Series, name: str) -> Iterator[tuple[tuple[str, ...], float]]:
    """The series of this name: values of the labels, and the value."""
    for (first, *labels), value in result.items():
        if first == name:
            yield tuple(labels), value
