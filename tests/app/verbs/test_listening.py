"""The addresses that the exporter listens on, and its messages if it cannot."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from perftop.base.errors import Failed
from perftop.process.sockets import inherited_sockets
from perftop.verbs.exporter import address, listening, public


def status(asked: str) -> tuple[int, str]:
    with pytest.raises(Failed) as found, listening(asked):
        pass
    assert "\n" not in str(found.value)
    return found.value.status, str(found.value)


@pytest.mark.parametrize(
    "asked", ["9917", ":9917", "x", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:80", ""]
)
def test_an_invalid_address_is_a_usage_error(asked: str) -> None:
    assert status(asked)[0] == 2


def test_a_port_in_use_is_reported_with_a_fix() -> None:
    with listening("127.0.0.1:0") as (one,):
        port = one.getsockname()[1]
        assert address(one) == f"http://127.0.0.1:{port}/metrics"
        assert not public(one)
        code, text = status(f"127.0.0.1:{port}")
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; " in text


@pytest.mark.parametrize("asked", ["192.0.2.1:9917", "no.such.host.invalid:1", "unix:/no/such/x"])
def test_an_unusable_address_fails(asked: str) -> None:
    code, text = status(asked)
    assert code == 1
    assert text.startswith(f"cannot listen on {asked}: ")


def test_all_interfaces_are_public() -> None:
    with listening("0.0.0.0:0") as (one,):
        assert public(one)


def test_ipv6_addresses_have_brackets() -> None:
    try:
        with listening("[::1]:0") as (one,):
            assert address(one).startswith("http://[::1]:")
            assert not public(one)
    except Failed as failed:
        pytest.skip(str(failed))


def test_a_unix_socket_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(f"unix:{path}") as (one,):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert address(one) == f"unix:{path}"
        assert not public(one)
        assert "another program listens there" in status(f"unix:{path}")[1]
    assert not path.exists()


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with listening(f"unix:{path}"), socket.socket(socket.AF_UNIX) as new_connection:
        new_connection.connect(str(path))


def test_a_file_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    assert "no socket" in status(f"unix:{path}")[1]
    assert path.read_text() == "precious"


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert status(f"unix:{tmp_path / ('x' * 120)}")[0] == 1


def test_nothing_is_inherited_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, count in (("1", "1"), (str(os.getpid()), "-1"), ("", "")):
        monkeypatch.setenv("LISTEN_PID", pid)
        monkeypatch.setenv("LISTEN_FDS", count)
        assert inherited_sockets() == []
        assert "LISTEN_FDS" not in os.environ
