"""`perftop exporter` as started by a user, by systemd, and for node_exporter; and its addresses."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from command import argv, children, run_in_process
from exporter_page import series
from exports import messages
from nightly import cases_by_day
from running_exporter import RunningExporter, exporter, started_exporter
from waiting import MAX_WAIT_S, wait_for

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.process import serving
from perftop.process.serving import OPENMETRICS, TEXT, inherited_sockets
from perftop.verbs import exporter_server
from perftop.verbs.exporter_server import is_public, listener_address, listening_sockets

SIM = ("--source", "sim:turbo-drop,cpus=4", "--sample", "200ms")


@pytest.mark.parametrize("number", cases_by_day([signal.SIGTERM, signal.SIGINT], [signal.SIGTERM]))
def test_an_exporter_can_be_scraped_and_ends_with_status_0(number: signal.Signals) -> None:
    with exporter(*SIM, "--listen", "127.0.0.1:0") as running:
        status, kind, body = running.get()
        assert (status, kind) == (200, TEXT)
        assert len(series(body, openmetrics=False)) == running.series
        assert running.get(accept="application/openmetrics-text")[1] == OPENMETRICS
        assert running.get("/")[0] == 200
        before = series(body, openmetrics=False)["perftop_smt_seconds_total", "0", "lp0"]

        def has_grown() -> bool:
            now = series(running.get()[2], openmetrics=False)
            return now["perftop_smt_seconds_total", "0", "lp0"] > before

        wait_for(has_grown, "counters that grow")
        probes = children(running.process.pid)
        assert probes
        assert running.end(number) == (0, b"")
        assert not any(Path(f"/proc/{pid}").exists() for pid in probes)


def test_an_inherited_socket_is_used(tmp_path: Path) -> None:
    """systemd passes the socket as descriptor 3, and names the intended process."""
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        connection.listen()
        code = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); "
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); "
            "os.execv(sys.argv[2], sys.argv[2:])"
        )
        command = [sys.executable, "-c", code, str(connection.fileno()), *argv("exporter", *SIM)]
        with started_exporter(command, [connection.fileno()]) as process:
            running = RunningExporter(process)
            assert running.where.startswith(f"127.0.0.1:{connection.getsockname()[1]}/")
            assert running.get()[0] == 200
            assert running.end()[0] == 0


def test_a_missing_source_ends_with_status_3(tmp_path: Path) -> None:
    result = run_in_process("exporter", "--listen", f"unix:{tmp_path / 's'}", "--source", "msr",
                "--sysroot", str(tmp_path))  # fmt: skip
    assert result.returncode == 3
    assert not (tmp_path / "s").exists()


def test_a_dead_probe_ends_the_exporter_with_status_1(tmp_path: Path) -> None:
    with exporter(*SIM, "--listen", f"unix:{tmp_path / 's'}") as running:
        os.kill(children(running.process.pid)[0], signal.SIGKILL)
        assert running.process.wait(MAX_WAIT_S) == 1


def test_a_silent_probe_is_not_reported_as_an_idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds without a sample the page is unavailable."""
    assert exporter_server.STALE_S >= 10

    async def stream() -> AsyncIterator[list[wire.Message]]:
        yield messages("steady,cpus=4", 2)

    async def pages_before_and_after_silence() -> tuple[bytes | None, bytes | None]:
        one = exporter_server.Exporter()
        await one.consume(stream())
        before = one.page(openmetrics=True)
        monkeypatch.setattr(exporter_server, "STALE_S", -1.0)
        monkeypatch.setattr(exporter_server, "STALE_SAMPLES", -1)
        return before, one.page(openmetrics=True)

    before, after = asyncio.run(pages_before_and_after_silence())
    assert before is not None
    assert after is None


def test_a_text_file_is_written_for_node_exporter(tmp_path: Path) -> None:
    """The exporter then has no socket, and removes the file at its end."""
    path = tmp_path / "perftop.prom"
    with started_exporter(argv("exporter", *SIM, "--textfile", str(path))) as process:
        wait_for(path.exists, "the file")
        result = series(path.read_bytes(), openmetrics=False)
        assert result["perftop_series",] == len(result)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert [each.name for each in tmp_path.iterdir()] == ["perftop.prom"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(MAX_WAIT_S) == 0
    assert not [*tmp_path.iterdir()]


def test_an_unwritable_text_file_ends_the_exporter(tmp_path: Path) -> None:
    result = run_in_process("exporter", *SIM, "--textfile", str(tmp_path / "no" / "x.prom"))
    assert result.returncode == 1
    assert "cannot write" in result.stderr
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        result = run_in_process("exporter", *SIM, "--textfile", str(path))
        why = "it is not a file; name one, such as perftop.prom"
        assert (result.returncode, result.stderr) == (1, f"perftop: cannot write {path}: {why}\n")
    assert (tmp_path / "pipe").is_fifo()


# --- addresses


def status(address: str) -> tuple[int, str]:
    with pytest.raises(Failed) as result, listening_sockets(address):
        pass
    assert "\n" not in str(result.value)
    return result.value.status, str(result.value)


@pytest.mark.parametrize(
    "address",
    [
        "9917",
        ":9917",
        "x",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:65536",
        "127.0.0.1:00655360",
        "::1:80",
        "",
        "unix:",
    ],
)
def test_an_invalid_address_is_a_usage_error(address: str) -> None:
    assert status(address)[0] == 2


def test_a_used_port_is_reported_with_a_fix() -> None:
    with listening_sockets("127.0.0.1:0") as (one,):
        port = one.getsockname()[1]
        assert listener_address(one) == f"http://127.0.0.1:{port}/metrics"
        assert not is_public(one)
        code, text = status(f"127.0.0.1:{port}")
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; " in text


@pytest.mark.parametrize("address", ["192.0.2.1:9917", "no.such.host.invalid:1", "unix:/no/such/x"])
def test_an_unusable_address_is_reported(address: str) -> None:
    code, text = status(address)
    assert code == 1
    assert text.startswith(f"cannot listen on {address}: ")


@pytest.mark.parametrize(("address", "fix"), [
    ("unix:/run/p.sock", "use a directory of your own"), ("127.0.0.1:80", "use a port from 1024 on")
])  # fmt: skip
def test_the_fix_for_a_refused_address_suits_it(address: str, fix: str) -> None:
    error = PermissionError(errno.EACCES, "Permission denied")
    text = str(serving.failure_to_listen(address, error))
    assert text == f"cannot listen on {address}: Permission denied; {fix}"


@pytest.mark.parametrize(("where", "host", "place"), [
    ("127.0.0.1:0", "127.0.0.1", " on this machine"),
    ("0.0.0.0:0", socket.gethostname(), ""),
    ("[::1]:0", "[::1]", " on this machine"),
])  # fmt: skip
def test_the_lines_for_prometheus_name_the_address(where: str, host: str, place: str) -> None:
    try:
        with listening_sockets(where) as (one,):
            port = one.getsockname()[1]
            assert is_public(one) is (place == "")
            assert listener_address(one).startswith(f"http://{where.removesuffix(':0')}:")
            comment, *lines = exporter_server.scrape_snippet(*one.getsockname()[:2]).splitlines()
    except Failed as failed:
        pytest.skip(str(failed))
    assert comment == f"# in prometheus.yml{place}:"
    assert lines == [
        "scrape_configs:",
        "  - job_name: perftop",
        "    static_configs:",
        f'      - targets: ["{host}:{port}"]',
    ]


@pytest.mark.parametrize(("listen", "code", "text"), [
    ((), 0, 'targets: ["127.0.0.1:9917"]'),
    (("--listen", "[::]:99"), 0, f'targets: ["{socket.gethostname()}:99"]'),
    (("--listen", "n1"), 2, "invalid address 'n1'"),
    (("--listen", "unix:s"), 2, "Prometheus cannot scrape a Unix socket; give --listen HOST:PORT"),
])  # fmt: skip
def test_the_lines_for_prometheus_are_printed_without_listening(
    listen: tuple[str, ...], code: int, text: str
) -> None:
    result = run_in_process("exporter", "--print-scrape-config", *listen)
    assert result.returncode == code
    assert text in (result.stderr if code else result.stdout)


def test_a_unix_socket_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening_sockets(f"unix:{path}") as (one,):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert listener_address(one) == f"unix:{path}"
        assert not is_public(one)
        assert "another program listens there" in status(f"unix:{path}")[1]
    assert not path.exists()


def test_a_regular_file_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    assert "not a socket" in status(f"unix:{path}")[1]
    assert path.read_text() == "precious"


def test_only_sockets_intended_for_the_exporter_are_inherited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for pid, count in (("1", "1"), (str(os.getpid()), "-1"), ("", "")):
        monkeypatch.setenv("LISTEN_PID", pid)
        monkeypatch.setenv("LISTEN_FDS", count)
        assert inherited_sockets() == []
        assert "LISTEN_FDS" not in os.environ
