"""A fleet from a Prometheus server: one with given responses, hostile ones, and a real one."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf, nan
from pathlib import Path
from typing import Any

import command
import pytest
from command import run_in_process
from running_exporter import exporter, start_prometheus
from waiting import MAX_WAIT_S, until_true, wait_for

from perftop.base.errors import Failed
from perftop.session.fleet import Fleet
from perftop.session.fleet_machine import UNKNOWN_NUMBERS, Machine
from perftop.verbs import fleet_prometheus
from perftop.verbs.fleet_prometheus import (
    INSTANCE,
    FleetQueries,
    PrometheusServer,
    PrometheusSource,
    Series,
    _host_name,
    fill_episodes,
    history_step_s,
)

NOW = 1_700_000_000.0
Row = tuple[dict[str, str], list[tuple[float, float]]]
Answer = Callable[[str, dict[str, str]], Any]


@contextmanager
def server_address(answer: Answer) -> Iterator[str]:
    """A server on loopback; `answer` gets the last part of the path and the fields. Bytes are sent
    unchanged, a str is an error, rows are a result."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            fields = {key: value[0] for key, value in urllib.parse.parse_qs(query).items()}
            result = answer(path.rpartition("/")[2], fields)
            status, body = 200, result
            if isinstance(result, str):
                status, body = 422, json.dumps({"status": "error", "error": result}).encode()
            elif not isinstance(result, bytes):
                body = response_body(result)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Suppresses messages on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def response_body(rows: list[Row]) -> bytes:
    result = [
        {"metric": labels, "values": [[at, str(v)] for at, v in points]} for labels, points in rows
    ]
    return json.dumps({"status": "success", "data": {"result": result}}).encode()


def fleet_of(at: float, path: str, fields: dict[str, str], hot: float = 0.0) -> list[Row]:
    """Two machines and a missing one; k1 is below its ceiling since `hot`."""
    if path == "query_range":
        start, end, step = (float(fields[key]) for key in ("start", "end", "step"))
        times = [start + i * step for i in range(int((end - start) / step) + 1)]
        if "episode" in fields["query"]:
            labels = {"instance": "k1:9917", "kind": "turbo-drop", "cause": "power-pl1"}
            return [(labels, [(t, 1.0) for t in times if t >= hot])]
        shares = {"busy": 0.75, "steal": 0.25}
        return [({"instance": "k1:9917", "perftop_number": key}, [(t, share) for t in times])
                for key, share in shares.items()]  # fmt: skip
    machines = {
        "k1:9917": {"busy": 1.0, "clock_hz": 2e9, "ceiling_hz": 4e9, "age": 7.0, "known": 1.0},
        "k2:9917": {"busy": 0.5, "clock_hz": 4e9, "ceiling_hz": 4e9, "age": 1.0, "known": 1.0},
        "k3:9917": {"known": 1.0},
    }
    return [
        ({"instance": name, "perftop_number": key}, [(at, value)])
        for name, numbers in machines.items()
        for key, value in numbers.items()
    ]


def run_until(source: PrometheusSource, then: Callable[[], object]) -> None:
    """Runs the source until `then` is true."""

    async def scenario() -> None:
        task = asyncio.create_task(source.run())
        try:
            await until_true(lambda: task.done() or then(), "a response is handled")
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    asyncio.run(scenario())


def test_machines_have_their_values_and_missing_ones_are_listed() -> None:
    """The server's clock is 100 s ahead; ages and starts are by the viewer's clock."""
    server_now = NOW + 100

    def answer(path: str, fields: dict[str, str]) -> Any:
        return fleet_of(server_now, path, fields, hot=server_now - 300)

    with server_address(answer) as url:
        source = PrometheusSource(url, update_s=0.1, clock=lambda: NOW)
        assert source.cost_texts() == ["0 kB/s"]
        run_until(source, lambda: source.cost_texts() != ["0 kB/s"])
    k1, k2, k3 = (source.fleet.machines[f"k{i}:9917"] for i in (1, 2, 3))
    assert k1.numbers["lost"] == pytest.approx(0.5)
    assert k1.updated_at == NOW - 7
    assert k1.cause == ("turbo-drop", "power-pl1")
    assert k1.running[0].start == pytest.approx(NOW - 300, abs=15)
    assert k1.open_arguments == ("live", "--host", "k1")
    assert k1.history.series(4, NOW)[1] == pytest.approx(0.25)
    assert (k2.numbers["lost"], k2.running) == (0.0, [])
    assert not k3.is_answering
    assert "not scraped" in k3.why


def test_queries_about_the_past_use_the_servers_clock() -> None:
    times: list[float] = []

    def answer(path: str, fields: dict[str, str]) -> Any:
        if fields["query"] == "vector(time())":
            return [({}, [(NOW + 100, NOW + 100)])]
        if path == "query" and "time" in fields:
            times.append(float(fields["time"]))
        return fleet_of(float(fields.get("time", NOW + 100)), path, fields)

    with server_address(answer) as url:
        source = PrometheusSource(url, clock=lambda: NOW)
        missing = Machine("k3:9917")
        missing.fall_silent(NOW - 5, "")
        source.fleet.machines[missing.name] = missing
        assert source.move_in_time(-4)
        run_until(source, lambda: len(source.fleet.machines) == 3)
    assert times[0] == NOW + 100 - 60
    assert source.shown_time_s == NOW - 60
    assert source.fleet.machines[missing.name].silent_since == NOW - 60
    assert source.shown_time_text
    source.move_in_time(10)
    assert source.shown_time_text == ""


def test_a_query_that_took_the_whole_interval_is_followed_by_the_next() -> None:
    queries: list[str] = []

    def answer(path: str, fields: dict[str, str]) -> Any:
        queries.append(path)
        return fleet_of(NOW, path, fields)

    times = itertools.count(NOW, 600)
    with server_address(answer) as url:
        source = PrometheusSource(url, update_s=1000, clock=lambda: next(times))
        run_until(source, lambda: len(queries) > 3)
    assert PrometheusSource(url, update_s=0.01).update_s == fleet_prometheus.MIN_PAUSE_S


@pytest.mark.parametrize(("pair", "is_valid"), [
    ([0, "1"], True), ([1e11, "1"], True), ([1.01e11, "1"], False), ([-1, "1"], False),
    ([1, "-1e18"], True), ([1, "1.01e18"], False), ([1, "NaN"], False), ([1], False),
])  # fmt: skip
def test_points_have_a_plausible_time_and_value(pair: list[Any], is_valid: bool) -> None:
    assert (fleet_prometheus._parse_point(pair) is not None) is is_valid


def test_an_error_is_shown_with_the_escaped_text_of_the_server() -> None:
    pattern = r"returned an error: parse error\?\[2J: no match"
    error_text = "parse error\x1b[2J: no match[]"
    with server_address(lambda *_: error_text) as url, pytest.raises(Failed, match=pattern):
        run_until(PrometheusSource(url), lambda: False)


@pytest.mark.parametrize(("body", "text"), [
    (b"<html>", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b'{"data":{}}', "no result"),
    (b"[]", "no result"),
    (b"x" * 2_000_000, "larger"),
    (b'{"data":{"result":[{},{},{}]}}', "over 2 series: narrow it with --match"),
])  # fmt: skip
def test_invalid_or_large_responses_are_refused(
    body: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_prometheus, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(fleet_prometheus, "MAX_SERIES", 2)
    with server_address(lambda *_: body) as url, pytest.raises(Failed, match=text):
        PrometheusServer(url).query("up")


def test_malformed_series_are_ignored() -> None:
    rows = [{"metric": {"a": 1}, "value": [1, "2"]}, {"metric": {}, "value": ["x"]}, 7,
            {"metric": {}, "values": 3}, {"metric": []},
            {"metric": {}, "value": [10**400, "2"]},
            {"metric": {}, "values": [[-1, "2"], [0, "-3"], [1, "1e300"]]}]  # fmt: skip
    body = json.dumps({"data": {"result": rows}}).encode()
    with server_address(lambda *_: body) as url:
        result = PrometheusServer(url).query("up")
    assert [tuple(one) for one in result] == [
        ({"a": "1"}, [(1.0, 2.0)]),
        ({}, []),
        ({}, []),
        ({}, [(0.0, -3.0)]),
    ]


def test_a_missing_server_and_an_invalid_url_are_reported() -> None:
    with pytest.raises(Failed, match=r":1 does not answer: Connection refused$"):
        PrometheusServer("http://127.0.0.1:1").query("up")
    for url in (
        "file:///etc/passwd",
        "127.0.0.1:9090",
        "http://user@host",
        "http://[::1",
        "http://h:x",
    ):
        with pytest.raises(Failed, match="invalid URL"):
            PrometheusServer(url)


@pytest.mark.parametrize(("url", "address"), [
    ("http://[::1]", ("::1", 80)), ("https://[::1]/prom", ("::1", 443)),
    ("http://[::1]:9090", ("::1", 9090)), ("http://host", ("host", 80)),
])  # fmt: skip
def test_without_a_port_the_one_of_the_scheme_is_used(
    url: str, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = []

    def connect(address: tuple[str, int], *_: object) -> socket.socket:
        addresses.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(Failed, match="does not answer"):
        PrometheusServer(url).query("up")
    assert addresses == [address]


def test_a_new_interpreter_can_connect_over_https() -> None:
    arguments = ["fleet", "--prometheus", "https://127.0.0.1:1", "--json", "-n", "1"]
    code = f"import sys\nfrom perftop import cli\nsys.exit(cli.main({arguments}))"
    result = command.python(code, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "perftop: https://127.0.0.1:1 does not answer: Connection refused\n"


def test_matchers_are_in_all_selectors() -> None:
    queries = FleetQueries('{job="a"}', 60)
    for text in (queries.numbers(), queries.history(), queries.episodes()):
        assert text.count("perftop_") - text.count('"perftop_number"') == text.count('{job="a"')


@pytest.mark.parametrize(("times", "answers", "runs"), [
    ((60, 70, 80), True, [(160, 190)]),
    ((60, 70, 85, 101, 110), True, [(160, 195), (201, None)]),
    ((84, 94), True, [(184, 200)]),
    ((84, 95), True, [(184, None)]),
    ((84, 95), False, [(184, 200)]),
    ((), True, []),
])  # fmt: skip
def test_a_server_that_counts_in_steps_of_10_s_has_episodes_of_whole_steps(
    times: tuple[float, ...], answers: bool, runs: list[tuple[float, float | None]]
) -> None:
    """The newest step is at 100 s; the viewer's clock is 100 s ahead."""
    fleet = Fleet([Machine("a", is_answering=answers)])
    points = [(time, 1.0) for time in times]
    fill_episodes(fleet, [Series({INSTANCE: "a", "kind": "throttle"}, points),
                          Series({INSTANCE: "gone"}, points)], 100, 10, 100)  # fmt: skip
    row = fleet.machines["a"]
    assert [(e.start, e.end) for e in [*row.ended, *row.running]] == runs
    assert all(e.end is None for e in row.running)
    assert {(e.group, e.share) for e in row.running} <= {(("throttle", "unknown"), 1.0)}


@pytest.mark.parametrize(("machines", "update_s", "step_s"), [
    (0, 0.1, 1.0), (1, 15.0, 15.0), (1000, 1.0, 37.5), (100_000, 1.0, 60.0),
])  # fmt: skip
def test_more_machines_have_fewer_points_of_their_past(
    machines: int, update_s: float, step_s: float
) -> None:
    assert history_step_s(machines, update_s) == step_s


@pytest.mark.parametrize(("instance", "host"), [
    ("n1:9101", "n1"), ("[::1]:9101", "::1"), ("n1", "n1"), ("9101", "9101"), ("n1:up", "n1:up"),
])  # fmt: skip
def test_the_host_of_an_instance_has_no_port(instance: str, host: str) -> None:
    assert _host_name(instance) == host


EVERY_SERIES = 'count({__name__=~"perftop_.+"}) == on() perftop_series'
STATES = "sum(instance:perftop_smt:ratio_rate5m)"


def test_a_real_server_accepts_series_rules_and_queries_of_a_fleet(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    source = "--source", "sim:steady,cpus=4", "--sample", "200ms"
    with (
        exporter(*source, "--listen", "127.0.0.1:0") as running,
        start_prometheus(running.where.partition("/")[0], tmp_path) as real,
    ):
        wait_for(lambda: real.value(EVERY_SERIES), "as many series as the exporter reports")
        types = {row["metric"]: row["type"] for row in real.get("targets/metadata")}
        assert types["perftop_smt_seconds"] == "counter"  # with the suffix _total in the old format
        wait_for(lambda: (real.value(STATES) or 0) > 0, "a rule")  # at first 0 / 0
        assert real.value(STATES) == pytest.approx(1)
        rules = real.get("rules")["groups"]
        assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}
        fleet = PrometheusSource(real.root, '{job="perftop"}', 1.0)
        machines = fleet.fleet.machines

        def is_complete() -> bool:
            numbers = [m.numbers for m in machines_now()]
            return bool(numbers) and numbers[0]["clock_hz"] > 1e9 and numbers[0]["both"] > 0.9

        def machines_now() -> list[Any]:
            return list(fleet.fleet.machines.values())

        assert not machines
        run_until(fleet, is_complete)
    (machine,) = machines_now()
    assert machine.numbers["busy"] == pytest.approx(1.0, abs=0.05)
    assert machine.numbers["lost"] < 0.05


def random_answer(chance: random.Random) -> Answer:
    """A server with labels, times and values of any type."""
    names = "k1:9917", "k2", "-oProxyCommand=touch owned", "a b\n", "\x1b[2J\u202e", "", "[::1]:1"
    numbers = *UNKNOWN_NUMBERS, "age", "known", "suspects", "power_w", "other"
    values = 0.0, 1.0, -1.0, nan, inf, -inf, 1e308, -1e308, 5e-324, NOW, 1e19

    def answer(_path: str, _fields: dict[str, str]) -> list[Row]:
        rows: list[Row] = []
        for _ in range(chance.choice((0, 1, 50))):
            labels = {
                "instance": chance.choice(names), "perftop_number": chance.choice(numbers),
                "kind": chance.choice(("turbo-drop", "steal", *names)),
                "cause": chance.choice(("heat", "power-pl1", *names)),
            }  # fmt: skip
            times = [NOW + step for step in range(chance.choice((0, 1, 20)))]
            if chance.random() < 0.2:
                times = [chance.choice(values) for _ in times]
            rows.append((labels, [(time, chance.choice(values)) for time in times]))
        return rows

    return answer


def test_any_response_of_a_server_is_displayed_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    displayed_count = 0
    for seed in range(25):
        with server_address(random_answer(random.Random(seed))) as url:
            result = run_in_process("fleet", "--prometheus", url, "--json", "-n", "1")
        assert result.returncode in {0, 1}, result.stderr
        assert "internal error" not in result.stderr
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", result.stdout + result.stderr)
        for line in result.stdout.splitlines():
            json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        displayed_count += "k1" in result.stdout
    assert displayed_count > 3
    assert not list(tmp_path.iterdir())


# --- hostile prometheus servers: queries have limits of time and size


OK = b"HTTP/1.1 200 OK\r\n"
ENDLESS = OK + b"Transfer-Encoding: chunked\r\n\r\n"
KB = b"x" * 1024
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: /again\r\n"


def chain(first: bytes, rest: bytes) -> Iterator[bytes]:
    return itertools.chain([first], itertools.repeat(rest))


@contextmanager
def server(
    pieces: Iterable[bytes], pause_s: float = 0.0, was_requested: threading.Event | None = None
) -> Iterator[str]:
    """A server that sends the same pieces to each client, with a pause after each. `was_requested`
    is set after the first request."""
    pieces, over = iter(pieces), threading.Event()

    def serve(peer: socket.socket, pieces: Iterator[bytes]) -> None:
        with peer, suppress(OSError):
            peer.recv(1 << 16)
            if was_requested is not None:
                was_requested.set()
            for piece in pieces:
                peer.sendall(piece)
                if over.wait(pause_s):
                    return

    def accept() -> None:
        nonlocal pieces
        with suppress(OSError):
            while True:
                peer, _ = listening.accept()
                pieces, own = itertools.tee(pieces)
                threading.Thread(target=serve, args=(peer, own), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        listening.shutdown(socket.SHUT_RDWR)


SLOW_RESPONSES = {
    "status": chain(b"H", b""),
    "status, a byte at a time": (bytes([byte]) for byte in OK * 1000),
    "headers": chain(OK + b"X: ", b"x"),
    "header lines": chain(OK, b"X: x\r\n"),
    "interim answers": chain(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": chain(OK + b"\r\n", b" "),
    "chunks": chain(ENDLESS, b"1\r\n \r\n"),
    "size of a chunk": chain(ENDLESS, b"0"),
    "trailer": chain(ENDLESS + b"0\r\n", b"X: x\r\n"),
    "body of a redirection": chain(REDIRECT + b"\r\n", b" "),
    "body of a refusal": chain(b"HTTP/1.1 500 No\r\n\r\n", b" "),
}


@pytest.mark.parametrize("what", SLOW_RESPONSES)
def test_a_server_that_sends_slowly_has_one_deadline(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_prometheus, "MAX_QUERY_S", 0.3)
    with server(SLOW_RESPONSES[what], 0.03) as url, pytest.raises(Failed, match="took longer"):
        fleet_prometheus.PrometheusServer(url).query("up")


ENDLESS_RESPONSES = {
    "body": chain(OK + b"\r\n", KB),
    "chunks": chain(ENDLESS, b"400\r\n" + KB + b"\r\n"),
    "interim answers": chain(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 99),
    "trailer": chain(ENDLESS + b"0\r\n", b"X: x\r\n" * 99),
}


@pytest.mark.parametrize("what", ENDLESS_RESPONSES)
def test_an_endless_response_is_cut(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_prometheus, "MAX_BYTES", 1 << 20)
    with server(ENDLESS_RESPONSES[what]) as url, pytest.raises(Failed, match="larger than 1 MB"):
        (request := fleet_prometheus.PrometheusServer(url)).query("up")
    assert request.byte_count < 2 << 20


@pytest.mark.parametrize("where", ["file:///etc/passwd", "https://127.0.0.1:1/x", "/again"])
def test_a_redirection_is_named_and_not_followed(where: str) -> None:
    answer = b"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: " + where.encode() + b"\r\n\r\n"
    with server([answer]) as url, pytest.raises(Failed, match=f"error: 302 F {where}$"):
        fleet_prometheus.PrometheusServer(url).query("up")


def test_compressed_responses_are_not_decompressed() -> None:
    bomb = gzip.compress(b" " * (8 << 20))
    answer = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    with server([answer]) as url, pytest.raises(Failed, match="not JSON"):
        fleet_prometheus.PrometheusServer(url).query("up")


WITHOUT_DEADLINE = """
import sys
from perftop import cli
from perftop.verbs import fleet_prometheus
fleet_prometheus.MAX_QUERY_S = 600.0
sys.exit(cli.main(["fleet", "--prometheus", sys.argv[1], "--json", "-n", "1"]))
"""


def test_a_signal_ends_a_fleet_with_a_slow_server() -> None:
    request = threading.Event()
    with server(chain(OK + b"X: ", b"x"), 0.5, request) as url:
        command = [sys.executable, "-c", WITHOUT_DEADLINE, url]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert request.wait(MAX_WAIT_S)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, text = process.communicate(timeout=MAX_WAIT_S)
        finally:
            process.kill()
    assert (process.returncode, text) == (128 + signal.SIGTERM, b"")


def test_a_pause_freezes_the_time_until_the_next_one() -> None:
    now_s = 1000.0
    source = PrometheusSource("http://localhost:9", clock=lambda: now_s)
    states = []
    for _ in range(2):
        source.toggle_pause()
        now_s += 60.0
        states.append((source.shown_time_s, source.shown_time_text[:3], source._wake.is_set()))
        source._wake.clear()
    assert states == [(1000.0, "at ", True), (1120.0, "", True)]
