"""The proxy that the exporter's page describes: TLS, and only for holders of a certificate."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from roots import ROOT
from scraped import series
from scraping import exporter, started
from waiting import MOST_S, wait

NGINX = """daemon off; master_process off; pid {here}/pid; error_log stderr;
events {{}}
http {{ access_log off; client_body_temp_path {here}/b; proxy_temp_path {here}/p;
fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;
{server}
}}
"""


def openssl(here: Path, *arguments: str) -> None:
    subprocess.run(
        ["openssl", *arguments], cwd=here, check=True, capture_output=True, timeout=MOST_S
    )


def certificates(here: Path) -> None:
    """A certificate authority, and certificates signed by it for a host and a reader."""
    new = "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"
    openssl(here, *new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in ("host", "reader"):
        alias = "-addext", "subjectAltName=DNS:localhost"
        openssl(here, *new, "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-subj", f"/CN={name}",
                "-addext", "basicConstraints=CA:FALSE", *alias,
                "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip


@contextlib.contextmanager
def proxied(here: Path, target: str) -> Iterator[int]:
    """The port of nginx, set up as on the page, except for paths and ports."""
    page = (ROOT / "app/perftop/docs/exporter.md").read_text(encoding="utf-8")
    (server,) = re.findall(r"```nginx\n(.*?)```", page, re.DOTALL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ours = {"9918": f"127.0.0.1:{port}", "127.0.0.1:9917": target}
    for name, instead in ours.items():
        assert name in server
        server = server.replace(name, instead)
    server = re.sub(r"(host|ca)\.(pem|key)", rf"{here}/\g<0>", server)
    (here / "nginx.conf").write_text(NGINX.format(here=here, server=server))
    nginx = str(shutil.which("nginx"))
    with started([nginx, "-p", str(here), "-c", str(here / "nginx.conf")]) as process:

        def listens() -> bool:
            assert process.poll() is None, process.stderr and process.stderr.read()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        wait(listens, "nginx")
        yield port


def asked(port: int, here: Path, *, known: bool, path: str = "/metrics") -> tuple[int, bytes]:
    context = ssl.create_default_context(cafile=str(here / "ca.pem"))
    if known:
        context.load_cert_chain(here / "reader.pem", here / "reader.key")
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=MOST_S)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_only_holders_of_a_certificate_read(tmp_path: Path) -> None:
    for name in ("nginx", "openssl"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    certificates(tmp_path)
    source = "--source", "sim:smt-mix,cpus=4", "--sample", "200ms"
    with (
        exporter(*source, "--listen", "127.0.0.1:0") as running,
        proxied(tmp_path, running.where.partition("/")[0]) as port,
    ):
        status, body = asked(port, tmp_path, known=True)
        assert status == 200
        assert len(series(body, openmetrics=False)) >= running.series
        assert asked(port, tmp_path, known=False)[0] == 400
        assert asked(port, tmp_path, known=True, path="/")[0] == 404
