"""The verb `export`: input, selection of CPUs and metrics, output, and damaged input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import command
import pytest
from exports import export, export_file, hello, messages, record, rows, stream
from sim_streams import SAMPLE_NS
from waiting import MAX_WAIT_S

from perfprobe import wire
from perfprobe.cpu import cpu_sets
from perftop import cli
from perftop.base.errors import Failed
from perftop.verbs import headless
from perftop.verbs.recordings import FORMATS, Export

FOUND = messages("sim:hotplug,cpus=8,packages=2", 10.5)
HELLO = hello(FOUND)


@pytest.fixture(scope="module")
def recording_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return record(tmp_path_factory.mktemp("export") / "recording", FOUND).read_bytes()


@pytest.fixture
def path(tmp_path: Path, recording_bytes: bytes) -> Path:
    path = tmp_path / "recording"
    path.write_bytes(recording_bytes)
    return path


# --- selection


@pytest.mark.parametrize(
    "text", ["0-2,5", "7", "pkg1", "core1", "pkg1core0", "PKG0", " 1 , pkg1core1", "6-7,core0"]
)
def test_cpus_have_the_syntax_of_the_probe(path: Path, text: str) -> None:
    results = {int(row["cpu"]) for row in rows(export(path, cpus=text))}
    assert sorted(results) == cpu_sets.select(text, HELLO.topology)


@pytest.mark.parametrize(
    "text", ["8", "pkg9", "core0-1", "util>3", "", "0,,1", "type:", "-1", "!0", "5-3"]
)
def test_missing_and_invalid_cpus_are_refused(path: Path, text: str) -> None:
    with pytest.raises(Failed, match="--cpus") as failure:
        export(path, cpus=text)
    assert failure.value.status == 2
    assert not path.with_name("exported").exists()


def test_selected_cpus_are_exported_as_if_there_were_no_others(path: Path) -> None:
    lines = command.lines(export(path, "jsonl", cpus="0,4").decode())
    assert all({c["cpu"] for c in x["cpus"]} == {0, 4} for x in lines if x["type"] == "interval")
    assert not [x for x in lines if x["type"] == "episode"]  # CPU 7 goes offline
    leaves = command.lines(export(path, "jsonl", cpus="7").decode(), "episode")
    assert [x["kind"] for x in leaves] == ["offline"]
    whole = command.lines(export(path, "jsonl").decode(), "summary")[0]
    of_both = [x for x in whole["cpus"] if x["cpu"] in {0, 4}]
    assert lines[-1]["cpus"] == of_both
    mean = sum(x["util"]["mean"] for x in of_both) / 2
    assert lines[-1]["machine"]["util"]["mean"] == pytest.approx(mean, rel=1e-3)


def test_metrics_can_be_selected_by_key_or_column(path: Path) -> None:
    (first, *_) = rows(export(path, metrics=["ipc", "util_ratio", "smt", "cycles_count"]))
    states = [f"smt_{state}_ratio" for state in ("neither", "lp0", "lp1", "both")]
    assert list(first) == [
        "time_unix_s", "elapsed_s", "package", "core", "cpu", "online", "util_ratio", "ipc",
        *states, "cycles_count", "lost_frames_total", "late_frames_total", "suspect_counters",
        "host", "suspect", "why",
    ]  # fmt: skip
    for name, message in (
        ("busy", r"'busy'.*busy_hz"),
        ("e.l1-hits", "no event 'e.l1-hits' here; counted: none .choose them with -e"),
    ):
        with pytest.raises(Failed, match=message) as failure:
            export(path, metrics=[name])
        assert failure.value.status == 2


@pytest.mark.parametrize(("every_ns", "lengths"), [(None, {1.0}), (200_000_000, {0.2}),
                                                   (2_500_000_000, {2.5})])  # fmt: skip
def test_intervals_have_the_chosen_length(
    path: Path, every_ns: int | None, lengths: set[float]
) -> None:
    result = rows(export(path, every_ns=every_ns))
    assert {round(float(row["elapsed_s"]), 6) for row in result[:-8]} == lengths
    times = sorted({float(row["time_unix_s"]) for row in result})
    first_ns = FOUND[1].time_ns if isinstance(FOUND[1], wire.Frame) else 0
    span_s = sum(float(row["elapsed_s"]) for row in result if row["cpu"] == "0")
    start_s = (HELLO.wall_ns + first_ns - HELLO.raw_ns) / 1e9
    assert start_s + span_s == pytest.approx(times[-1])


@pytest.mark.parametrize("every_ns", [SAMPLE_NS // 2, SAMPLE_NS * 5 // 2])
def test_the_length_of_intervals_is_a_multiple_of_samples(path: Path, every_ns: int) -> None:
    with pytest.raises(Failed, match="must be a multiple of the recording's samples of 100 ms"):
        export(path, every_ns=every_ns)


# --- output


def test_an_existing_output_is_not_replaced_without_force(path: Path) -> None:
    out = path.with_name("mine.csv")
    out.write_text("precious")
    with pytest.raises(Failed, match="--force") as failure:
        export_file(path, out)
    assert failure.value.status == 1  # the status is the same as that of `record`
    assert out.read_text() == "precious"
    assert export_file(path, out, "csv", "--force") == 0
    assert out.read_text().startswith("time_unix_s")


def test_the_recording_is_never_overwritten(path: Path) -> None:
    before, link = path.read_bytes(), path.with_name("link")
    link.hardlink_to(path)
    with pytest.raises(Failed, match="cannot be the output"):
        export_file(path, link, "csv", "--force")
    result = command.run_in_process("why", str(path), "-o", str(link), "--force")
    assert (result.returncode, "cannot be the output" in result.stderr) == (2, True)
    assert path.read_bytes() == before


def test_an_unreadable_file_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failed, match=r"cannot read /proc/self/mem: Input/output error"):
        export_file(Path("/proc/self/mem"), path.with_name("out"))

    def refuse(self: Path) -> bool:  # root has permission for every file
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(Failed, match=r"cannot read .*: Permission denied"):
        export_file(path, path.with_name("out"))
    assert not path.with_name("out").exists()


@pytest.mark.parametrize("form", FORMATS)
def test_a_full_disk_is_reported_with_the_file_name(path: Path, form: str) -> None:
    with pytest.raises(Failed, match="cannot write all of /dev/full: No space") as failure:
        export_file(path, Path("/dev/full"), form, "--force")
    assert failure.value.status == 1


def test_a_full_temporary_directory_is_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full").open("wb")  # noqa: SIM115 - handed on
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: full)
    with pytest.raises(Failed, match=r"cannot write to .*: No space.*TMPDIR"):
        export(path, "openmetrics")


def test_pipes_can_be_input_and_output(path: Path) -> None:
    """Input is a stream as written by the probe; one reader of the output stops early."""
    argv = command.argv("export", "-", "--format", "jsonl")
    whole = stream([*FOUND, wire.Bye("done")])
    result = subprocess.run(argv, input=whole, capture_output=True, check=True, timeout=MAX_WAIT_S)
    assert result.stdout == export(path, "jsonl")
    assert result.stderr == b""
    with subprocess.Popen(
        command.argv("export", str(path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(MAX_WAIT_S) == 0


@pytest.mark.parametrize("verb", ["export", "why"])
def test_a_pipe_that_ends_early_is_reported(path: Path, verb: str) -> None:
    more = ("--format", "jsonl") if verb == "export" else ()
    argv, data = command.argv(verb, "-", *more), stream(FOUND)
    result = subprocess.run(argv, input=data, capture_output=True, check=False, timeout=MAX_WAIT_S)
    assert verb != "export" or result.stdout == export(path, "jsonl")
    assert result.returncode == 4
    assert (
        result.stderr.decode()
        == f"perftop: stdin: truncated after byte {len(data)}: it has no end\n"
    )


def test_a_pipe_receives_each_interval_immediately(path: Path) -> None:
    data = stream(FOUND)
    argv = command.argv("export", "-", "--format", "jsonl")
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.write(process.stdin.fileno(), data[: len(data) // 2])
        kinds = [json.loads(process.stdout.readline())["type"] for _ in range(3)]
        assert kinds == ["hello", "interval", "interval"]
        process.stdin.close()
        process.stdout.read()


# --- damage


def _cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def _torn(data: bytes) -> bytes:
    at = data.index(b"type", len(data) * 2 // 3) - 4
    return data[:at] + bytes(50) + data[at + 50 :]


def _flipped(data: bytes, share: float = 2 / 3) -> bytes:
    """Flips a bit within compressed data, where only the checksum detects it."""
    at = data.index(b"data", int(len(data) * share)) + 40
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


@pytest.mark.parametrize(("damage", "text"), [(_cut, "truncated at"), (_torn, "damaged at byte"),
                                              (_flipped, "damaged at byte")])  # fmt: skip
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_the_undamaged_part_is_exported(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
    text: str,
    form: str,
) -> None:
    whole = export(path, form).splitlines()
    path.write_bytes(damage(path.read_bytes()))
    printed = export(path, form, status=4).splitlines()
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line
    if form == "csv":
        same = len(printed) - 8  # the last interval is shorter
    else:
        assert json.loads(printed[-1])["type"] == "summary"
        same = max(i for i, x in enumerate(printed) if b'"interval"' in x)
    assert same > 5
    assert printed[:same] == whole[:same]


def test_the_part_after_the_damage_is_exported(path: Path) -> None:
    whole = rows(export(path))
    path.write_bytes(_flipped(path.read_bytes(), 0.3))
    printed = rows(export(path, status=4))
    times = [float(row["time_unix_s"]) for row in printed]
    assert times[-1] == float(whole[-1]["time_unix_s"])
    lengths = [float(row["elapsed_s"]) for row in printed]
    assert 2 < max(lengths) < 8, "the damaged part is one long interval"
    assert times[-1] - times[0] + lengths[0] == pytest.approx(10.4, abs=0.15)


def test_a_recording_without_frames_is_an_empty_table(path: Path) -> None:
    path.write_bytes(stream([HELLO, wire.Bye("done")]))
    assert rows(export(path)) == []
    assert [x["type"] for x in command.lines(export(path, "jsonl").decode())] == ["hello"]
    assert export(path, "openmetrics").endswith(b"# EOF\n")


def test_a_missing_pyarrow_is_reported_with_its_install_command(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Failed, match=r"pip install pyarrow") as failure:
        export(path, "parquet")
    assert failure.value.status == 3


@pytest.mark.parametrize("ended", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupted_export_leaves_no_file(
    path: Path, tmp_path: Path, ended: BaseException
) -> None:
    def interrupt(*_: object) -> None:
        raise ended

    out = tmp_path / "out.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Export, "on_interval", interrupt)
        with pytest.raises(type(ended)):
            cli.main(["export", str(path), "-o", str(out)])
    assert not out.exists()
    assert cli.main(["export", str(path), "-o", str(out)]) == 0
    assert out.stat().st_size > 1000


@pytest.mark.parametrize(("output", "terminal", "quiet"), [
    ("-", True, True), ("-", False, False), ("file", True, False),
])  # fmt: skip
def test_progress_is_not_mixed_with_output_on_the_terminal(
    output: str, terminal: bool, quiet: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []

    def read(*_: object, quiet: bool) -> None:
        requests.append(quiet)
        raise Failed("enough")

    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(headless, "read_with_progress", read)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert cli.main(["export", str(path), "-o", output]) == 1
    assert requests == [quiet]
