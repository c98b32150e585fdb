"""The filter language: the meaning of terms, and errors with their positions."""

from __future__ import annotations

import dataclasses
from typing import Any

import fakes
import numpy as np
import pytest
import synth
from fakes import CpuLoad, Machine
from hypothesis import given
from hypothesis import strategies as st

from perfprobe.wire import Cpu, Note
from perftop.base import text as text_of
from perftop.base.text import ranges
from perftop.model.evaluation import Values
from perftop.model.numbers import INDEX, METRICS
from perftop.session.interval import Interval
from perftop.session.selection import HELP, MAX_LENGTH, FilterError, parse_filter
from perftop.session.session import Session

NAMES = ["nginx", "Web Content", "kworker/2:1", "4242", "postgres", "nginx", "offline", "a|b"]


def machine() -> Machine:
    """Four cores of two CPUs, n and n + 4, in two packages; each id is a different function of the
    core. The counters of core 3 are implausible."""
    plain = synth.topology(4, 2)
    rows = [
        dataclasses.replace(
            row, package=n // 2, die=n % 2, core=n % 2 + 2, l3=n, node=1 - n // 2, type="PE"[n // 2]
        )
        for row, n in ((row, row.cpu % 4) for row in plain)
    ]
    changes = {"topology": rows, "packages": [[0, 1, 4, 5], [2, 3, 6, 7]]}
    does = {
        0: CpuLoad(util=0.9, hz=2.4e9, ipc=1.25, alone=0.2),
        4: CpuLoad(util=0.7, hz=3.0e9, ipc=0.5, alone=0.0),
        1: CpuLoad(util=0.25, hz=2.0e9, ipc=2.0, alone=0.25),
        5: CpuLoad(util=0.25, hz=2.0e9, ipc=2.0, alone=0.25),
        2: CpuLoad(util=0.0),
        6: CpuLoad(util=0.5, alone=0.5),
    }
    return Machine(loads=does, broken={3, 7}, changes=changes)


def session(records: dict[str, Any] | None = None) -> tuple[Session, Interval]:
    return fakes.observe(
        machine(), records=fakes.task_records(NAMES) if records is None else records
    )


SESSION, INTERVAL = session()


def cpus(text: str, session: Session = SESSION, interval: Interval | None = INTERVAL) -> str:
    """The CPUs that match, as text."""
    chosen = parse_filter(text)
    assert chosen is not None
    mask = chosen.cpus(session, interval)
    assert mask.dtype == bool
    return ranges(session.topology[row].cpu for row in np.flatnonzero(mask))


@pytest.mark.parametrize(("text", "expected"), [
    ("3", "3"),
    ("0-2,6", "0-2,6"),
    ("6-99999999999999999999,1", "1,6-7"),
    ("4096", ""),
    ("pkg:1", "2-3,6-7"),
    ("package:1", "2-3,6-7"),
    ("PKG:0", "0-1,4-5"),
    ("core:3", "1,3,5,7"),
    ("die:0", "0,2,4,6"),
    ("l3:0,2-3", "0,2-4,6-7"),
    ("node:1", "0-1,4-5"),
    ("type:E", "2-3,6-7"),
    ("type:p", "0-1,4-5"),
    ("type:none", ""),
    ("!type:E", "0-1,4-5"),
    ("!0-5", "6-7"),
    ("!!0-5", "0-5"),
    ("!!!0-5", "6-7"),
])  # fmt: skip
def test_cpus_can_be_filtered_by_place(text: str, expected: str) -> None:
    assert cpus(text) == expected
    assert cpus(text, interval=None) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("util>80", "0"),
    ("util > 80", "0"), ("pkg:0 util> 80 nginx", "0"),
    ("util>=50", "0,4,6"),
    ("UTIL<50%", "1-2,5"),
    ("util<=.0", "2"),
    ("util=25", "1,5"),
    ("util==25.0%", "1,5"),
    ("clock>2.", "0,4,6"),
    ("clock<2.5", "0-1,5"),
    ("Busy_Hz<2.5ghz", "0-1,5"),
    ("clock>=2400MHz", "0,4,6"),
    ("clock=2402mhz", "0"),
    ("net=2.16", "0"),
    ("IPC<1", "4"),
    ("ipc=1.25", "0,6"),
    ("krn=10", "0-1,4-6"),
    ("poll>=0", ""),
    ("both=70", "0,4"),
    ("lp0=20", "0,4"),
    ("lp0=25", "1,5"),
    ("lp1=50", "2,6"),
    ("neither<25", "0,4"),
    # tasks
    ("NGINX", "0,5"),
    ("gin", "0,5"),
    ('"web content"', "1"),
    ("web content", "1"),  # the name contains both texts
    ('content "b C"', "1"),
    ("kworker/2:1", "2"),
    ("pid:4003-4004,9", "3-4"),
    ("pid:400", ""),
    ('"4003"', "3"),
    ('"4242"', "3"),
    ('"offline"', "6"),
    ('"a|b"', "7"),
    ("offlin", "6"),
    ("util", ""),
    ("!nginx 0-5", "1-4"),
    # combined terms
    ("pkg:1 0-2", "2"),
    ("pkg:1 0-2 | 7", "2,7"),
    ("7 | pkg:1 0-2", "2,7"),
    ("pkg:1|7|0", "0,2-3,6-7"),
    ("pkg:0 !core:3 util>80 nginx", "0"),
    ("  0\t", "0"),
    ("\u30000\u3000| 1", "0-1"),
])  # fmt: skip
def test_cpus_can_be_filtered_by_metric_and_task(text: str, expected: str) -> None:
    assert cpus(text) == expected


@pytest.mark.parametrize("name", ["util", "busy", "clock", "ipc", "poll", "both", "lp1"])
def test_unknown_values_match_no_comparison(name: str) -> None:
    """Unknown values do not match a negated comparison either."""
    for text in (f"{name}{op}1" for op in (">", ">=", "<", "<=", "=", "==")):
        assert cpus(f"{text} 3,7") == cpus(f"!{text} 3,7") == ""
        assert cpus(text, interval=None) == cpus(f"!{text}", interval=None) == ""


def test_all_metrics_can_be_named_by_key_and_label() -> None:
    """On this machine each CPU has a single metric, and all metrics differ."""
    n = len(METRICS)
    session, interval = fakes.observe(Machine(cores=n, threads=1))
    top = np.where(np.eye(n, dtype=bool), 1.0, np.nan)
    interval = dataclasses.replace(interval, values=Values(top, np.ones((n, n))))
    for key, metric in METRICS.items():
        for name in (key, metric.label.replace(" ", "_"), key.upper()):
            assert cpus(f"{name}>=0", session, interval) == str(INDEX[key])


@given(
    st.sampled_from([("util", text_of.percent, 1.0), ("clock", text_of.clock_ghz, 5e9),
                     ("ipc", text_of.two_decimals, 5.0)]),
    st.floats(0, 1) | st.integers(0, 10_000).map(lambda n: n / 10_000),
    st.integers(-2, 2),
)  # fmt: skip
def test_equal_compares_displayed_values(
    metric_case: tuple[str, Any, float], share: float, off: int
) -> None:
    """This includes values between two displayed ones, where the last bit decides."""
    name, show, most = metric_case
    value = share * most
    key = {"clock": "busy_hz"}.get(name, name)
    top = np.full((len(METRICS), 8), np.nan)
    top[INDEX[key], 5] = value
    interval = dataclasses.replace(INTERVAL, values=Values(top, np.ones_like(top)))
    digits = 1 if name == "util" else 2
    typed = f"{max(0.0, float(show(value)) + off / 10**digits):.{digits}f}"
    assert cpus(f"{name}={typed}", interval=interval) == ("5" if typed == show(value) else "")
    assert cpus(f"!{name}={typed}", interval=interval) == ("" if typed == show(value) else "5")


def test_a_share_is_compared_exactly() -> None:
    """100 * 0.29 is less than 29."""
    top = np.full((len(METRICS), 8), np.nan)
    bottom = np.full_like(top, 100.0)
    for number in range(101):
        top[INDEX["util"], 0] = number
        interval = dataclasses.replace(INTERVAL, values=Values(top, bottom))
        assert cpus(f"util>={number}", interval=interval) == "0"
        assert cpus(f"util<={number}", interval=interval) == "0"
        assert cpus(f"util>{number}", interval=interval) == ""


def test_malformed_tasks_do_not_match() -> None:
    malformed: dict[Any, Any] = {
        "0": 12, "1": "nginx", "2": [1], "3": ["nginx", "nginx"], "4": [None, "nginx"],
        "5": [7, ["nginx"]], "6": [8, "nginx" + 1000 * "x"], "x": [9, "nginx"], 7: [9, "nginx"],
    }  # fmt: skip
    observed = session({"tasks": malformed})
    assert cpus("nginx", *observed) == "3-4,6"
    assert cpus("pid:0-9", *observed) == "2,5-6"
    assert cpus("nginx", SESSION, None) == ""


def test_offline_cpus_match_from_their_hotplug_note_on() -> None:
    changed, _ = session()
    changed.apply(Note("hotplug", 0, data={"cpu": 5, "online": False}))
    later = changed.take_interval()
    assert cpus("offline", changed, INTERVAL) == ""  # the CPU was still online at that time
    assert cpus("OFFLINE", changed, later) == cpus("offline", changed, None) == "5"
    assert cpus("!offline", changed, later) == cpus("online", changed, later) == "0-4,6-7"


def test_a_new_core_does_not_change_the_numbers_of_earlier_intervals() -> None:
    rows = synth.topology(3, 1)
    rows[1] = Cpu(1, online=False)
    three = Machine(3, 1, loads={1: CpuLoad(alone=0.0)}, changes={"topology": rows})
    three.hello = dataclasses.replace(three.hello, cores=[[0], [2]])
    later, interval = fakes.observe(three)
    assert cpus("lp0=50", later, interval) == "0,2"
    assert cpus("core:1", later, interval) == ""
    row = {"package": 0, "die": 0, "core": 1}
    later.apply(Note("hotplug", 0, data={"cpu": 1, "online": True, "row": row}))
    assert cpus("lp0=50", later, interval) == "0,2"
    assert cpus("core:1", later, interval) == "1"


def test_a_core_that_was_offline_in_hello_matches() -> None:
    """The core lists of blocks do not change: they lack CPUs that were offline at first."""
    hello = fakes.observe(Machine(3, 1))[0].hello
    late = Session(dataclasses.replace(hello, cores=[[0], [2]]))
    assert late.cores == [[0], [1], [2]]


def test_suspect_counters_match() -> None:
    assert cpus("suspect") == "3,7"
    assert cpus("suspect", interval=None) == ""


def test_an_invalid_topology_row_is_ignored() -> None:
    changed, interval = session()
    row = {"core": "2", "package": [0], "type": 5}
    changed.apply(Note("hotplug", 0, data={"cpu": 7, "online": True, "row": row}))
    for text in ("core:2", "core:3", "pkg:1", "type:5 | type:E"):
        assert cpus(text, changed, interval) == cpus(text)


def test_a_kernel_without_topology_has_no_packages_and_cores() -> None:
    rows = [dataclasses.replace(row, core=None, package=None) for row in synth.topology(2, 1)]
    observed = fakes.observe(Machine(cores=2, threads=1, changes={"topology": rows}))
    assert cpus("core:0-9", *observed) == cpus("type:E", *observed) == ""
    assert cpus("!type:E", *observed) == "0-1"


@pytest.mark.parametrize("text", ["", " ", "\t\u3000\n", " " * 1000])
def test_an_empty_text_is_not_a_filter(text: str) -> None:
    assert parse_filter(text) is None


@pytest.mark.parametrize(("text", "at", "message"), [
    ("9-3", 0, "'9-3' runs backwards: 3-9"),
    ("1 0,9-3", 4, "'9-3' runs backwards: 3-9"),
    ("0-", 2, "'0-' is not a number or range: 0-15,32"),
    ("0-15,", 5, "a number is missing: 0-15,32"),
    ("-5", 0, "'-5' is not a number or range: 0-15,32"),
    ("3-4-5", 3, "'3-4-5' is not a number or range: 0-15,32"),
    ("core:", 5, "a number is missing: core:0-3,7"),
    ("core:1,2x", 8, "'2x' is not a number or range: core:0-3,7"),
    ("pid:x", 4, "'x' is not a number or range: pid:4711"),
    ("type:", 5, "a core type is missing: type:E"),
    ("0 foo:3", 2, "unknown 'foo:' (known: core pkg die l3 node type pid; or quote it)"),
    ("x" * 30 + ":3", 0,
     f"unknown '{15 * 'x'}…:' (known: core pkg die l3 node type pid; or quote it)"),
    ("utl>3", 0, "unknown metric 'utl': did you mean util? To search for the text, quote it"),
    ("!inv>3", 1, "unknown metric 'inv': did you mean invol? To search for the text, quote it"),
    ("qqqq>3", 0, "unknown metric 'qqqq'; try busy. To search for the text, quote it"),
    (">80", 0, "a metric is missing before >: busy>80"),
    ("util>", 5, "a number is missing: util>80"),
    ("util > x", 7, "'x' does not fit: util>80"),
    ("util>x", 5, "'x' does not fit: util>80"),
    ("util>-1", 5, "'-1' does not fit: util>80"),
    ("util>80GHz", 7, "'80GHz' does not fit: util>80"),
    ("Clock<2.5%", 9, "'2.5%' does not fit: Clock<2.5GHz"),
    ("ipc>1%", 5, "'1%' does not fit: ipc>1.5"),
    ("util=>3", 4, "unknown '=>' (try > >= < <= =)"),
    ("util!=3", 4, "!= is unknown; put ! before a term: !busy=80"),
    ('0 !"a b', 3, 'a quote is not closed: "a b"'),
    ('""', 2, 'no text in the quotes: !core:3 or !"a b"'),
    ('x"a b"', 1, 'quotes go around a whole term: "a b"'),
    ('"a"b', 3, 'quotes go around a whole term: "a b"'),
    ("! 3", 1, '! belongs right before a term: !core:3 or !"a b"'),
    ("!", 1, '! belongs right before a term: !core:3 or !"a b"'),
    ("| 3", 0, "| belongs between two terms: type:E | busy>80"),
    ("3 ||4", 3, "| belongs between two terms: type:E | busy>80"),
    ("3 | ", 4, "| belongs between two terms: type:E | busy>80"),
    ("x" * (MAX_LENGTH + 1), MAX_LENGTH, "too long: a filter has at most 200 characters"),
])  # fmt: skip
def test_errors_of_a_filter_have_a_position(text: str, at: int, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    assert (str(caught.value), caught.value.offset) == (message, at)


@pytest.mark.parametrize(("text", "steady"), [
    ("0-3 !pkg:1 | type:E", True),
    ("0-3 | util>80", False),
    ("!util>80", False),
    ("both>1", False),
    ("nginx", False),
    ("pid:3", False),
    ("offline", False),
    ("!suspect", False),
    ("x" * MAX_LENGTH, False),
])  # fmt: skip
def test_filters_report_whether_their_result_is_fixed(text: str, steady: bool) -> None:
    chosen = parse_filter(text)
    assert chosen is not None
    assert chosen.is_steady is steady


def test_examples_in_the_help_are_valid_filters() -> None:
    for example, meaning in HELP:
        assert parse_filter(example) is not None
        assert len(example) <= 20
        assert len(meaning) <= 56


PIECES = ["core:", "pkg:1", "type:E", "pid:", "foo:", "0-3", "7", ",", "-", "util", "clock", "both",
          ">", "<=", "=", "80", ".5", "%", "GHz", "!", "|", " ", '"', "nginx", "off", "line",
          "suspect"]  # fmt: skip


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_a_filter_or_a_printable_error(text: str) -> None:
    try:
        chosen = parse_filter(text)
    except FilterError as error:
        assert 0 <= error.offset <= len(text)
        assert str(error).isprintable()
        assert 0 < len(str(error)) < 80
        return
    assert (chosen is None) == (not text.strip())
    if chosen is None:
        return
    again = parse_filter(chosen.text)
    assert again is not None
    assert (again.text, again.is_steady) == (chosen.text, chosen.is_steady)
    for interval in (INTERVAL, None):
        mask = chosen.cpus(SESSION, interval)
        assert mask.shape == (8,)
        assert mask.tolist() == again.cpus(SESSION, interval).tolist()
    if chosen.is_steady:
        assert chosen.cpus(SESSION, INTERVAL).tolist() == chosen.cpus(SESSION, None).tolist()
