"""Files prepared by another user cannot misdirect what root writes, lists or removes.

Both users act in this process: `nobody` by its effective user ID and with relative paths only,
since it cannot enter the parent directories of the test's directory.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import capabilities
import pytest
import synth
from command import run_in_process
from exports import record, single_counter_messages
from roots import ROOT

from perftop.base import files
from perftop.base.errors import Failed
from perftop.process import serving
from perftop.recording.ring import KEPT_DIRECTORY, Ring
from perftop.recording.writer import Writer
from perftop.tui import config, recording_index
from perftop.tui.app import PerfTopApp, ScreenSource
from perftop.verbs import headless
from perftop.verbs.exporter_server import FILE_PERIOD_S, Exporter

SKIP_REASON = capabilities.cannot_be_another_user()
pytestmark = pytest.mark.skipif(bool(SKIP_REASON), reason=SKIP_REASON or "two users can be acted")
HELLO = synth.hello([synth.REF])
S = 1_000_000_000
RING_BYTES = 20_000
"""Maximum size of a ring in bytes: a few parts fill it."""
GROUP = 12345
SIM = "--source", "sim:smt-mix,cpus=2,speed=max"


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    os.setegid(pwd.getpwnam("nobody").pw_gid)
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def shared_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which all users may create files, like /tmp."""
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def home_directories(tmp_path: Path) -> Iterator[Path]:
    """Files of root and others, which must be unchanged after the test."""
    path = tmp_path / "homes"
    (path / "alice").mkdir(parents=True)
    names = "alice/thesis", "out", "000001.part", *(f"{n:040}" for n in range(100))
    for name in names:
        (path / name).write_text("precious", encoding="ascii")
        (path / name).chmod(0o640)
    yield path
    for name in names:
        result = (path / name).stat()
        assert (path / name).read_text(encoding="ascii") == "precious"
        assert (stat.S_IMODE(result.st_mode), result.st_uid, result.st_gid) == (0o640, 0, 0)
    assert len([*path.rglob("*")]) == len(names) + 1, "nothing was added"


def fill(box: Ring, start_s: int = 0) -> None:
    """Records 40 s of frames, starting at `start_s`."""
    for seq in range(start_s * S // synth.SAMPLE_NS, (start_s + 40) * S // synth.SAMPLE_NS):
        box.write(synth.frame(HELLO, seq, {"ref": [seq, seq]}))


def run_ring(path: Path) -> Ring:
    box = Ring(path, HELLO, 30 * S, RING_BYTES)
    fill(box)
    return box


def make_box_of_nobody(mode: int, home_directories: Path) -> None:
    with as_nobody():
        os.mkdir("box")
        os.symlink(home_directories, "box/kept")
    os.chmod("box", mode)


def make_box_of_root(mode: int, home_directories: Path) -> None:
    os.mkdir("box")
    os.chmod("box", mode)
    with as_nobody() if mode & 0o002 else contextlib.nullcontext():
        os.symlink(home_directories, "box/kept")


def make_box_link(_: int, home_directories: Path) -> None:
    with as_nobody():
        os.symlink(home_directories.parent / "rings", "box")
    os.mkdir(home_directories.parent / "rings", 0o700)


def make_part_of_nobody(mode: int, _: Path) -> None:
    os.mkdir("box", mode)
    with open("box/000001.part", "w") as part:
        os.fchown(part.fileno(), 65534, 65534)


def make_part_as_link(mode: int, home_directories: Path) -> None:
    os.mkdir("box", mode)
    os.symlink(home_directories / "000001.part", "box/000001.part")


def make_kept_of_nobody(mode: int, home_directories: Path) -> None:
    os.makedirs("box/kept", mode)
    os.chown("box/kept", 65534, 65534)
    os.symlink(home_directories, "box/kept/20250101-000000-steal.perftop")


@pytest.mark.parametrize(("prepare", "mode", "message"), [
    (make_box_of_nobody, 0o755, r"belongs to another user \(nobody\); name one of yours"),
    (make_box_of_root, 0o777, r"others can write to it; to prevent that: chmod go-w "),
    (make_box_of_root, 0o770, r"others can write to it; to prevent that: chmod go-w "),
    (make_box_of_root, 0o700, "--ring needs a directory of its own there"),
    (make_box_link, 0o700, r"box is a symbolic link owned by another user \(nobody\); give its"),
    (make_part_of_nobody, 0o700, "--ring needs a directory of its own there"),
    (make_part_as_link, 0o700, "--ring needs a directory of its own there"),
    (make_kept_of_nobody, 0o700, r"kept belongs to another user \(nobody\)"),
])  # fmt: skip
def test_a_ring_is_only_written_into_a_private_directory(
    shared_directory: Path,
    home_directories: Path,
    prepare: Callable[[int, Path], None],
    mode: int,
    message: str,
) -> None:
    prepare(mode, home_directories)
    with pytest.raises(Failed, match=f"^cannot record to {shared_directory}/box: .*{message}"):
        run_ring(shared_directory / "box")
    result = run_in_process("record", "--ring", "30s", "-o", "box", *SIM, "--duration", "1s")
    assert result.returncode == 1
    assert "cannot record to box: " in result.stderr


def test_a_ring_counts_and_removes_only_its_own_files(
    shared_directory: Path, home_directories: Path
) -> None:
    """It ignores files added by others while the directory was writable for them, and files with
    other names."""
    kept = shared_directory / "box" / KEPT_DIRECTORY
    for name in ("20250101-000000-steal.perftop", "mine.perftop", "20250101-000001-steal.perftop"):
        (kept / name).mkdir(parents=True, mode=0o700)
        (kept / name / "000001.part").write_bytes(b"x" * 100)
    (kept / "20250101-000001-steal.perftop").chmod(0o777)
    (kept / "20250101-000002-steal.perftop").symlink_to(home_directories)
    (kept.parent / KEPT_DIRECTORY).chmod(0o755)
    box = Ring(shared_directory / "box", HELLO, 30 * S, 10**6)
    for place in (kept.parent, kept / "20250101-000000-steal.perftop"):
        with (place / "zzz.part").open("wb") as sparse:
            os.ftruncate(sparse.fileno(), 2 << 30)
        with (place / "000099.part").open("wb") as sparse:
            os.ftruncate(sparse.fileno(), 2 << 30)
            os.fchown(sparse.fileno(), 65534, 65534)
    fill(box)
    assert box.notices == []
    assert " MB" not in box.extent
    box._max_bytes = 1000
    fill(box, 40)
    assert sorted(os.listdir(kept)) == [
        "20250101-000000-steal.perftop", "20250101-000001-steal.perftop",
        "20250101-000002-steal.perftop", "mine.perftop",
    ]  # fmt: skip
    assert sorted(os.listdir(kept / "20250101-000000-steal.perftop")) == [
        "000099.part", "zzz.part"
    ]  # fmt: skip
    assert os.listdir(kept / "20250101-000001-steal.perftop") == ["000001.part"]


def test_a_ring_continues_in_its_opened_directory(
    shared_directory: Path, home_directories: Path
) -> None:
    """The ring's path changes meanwhile, below a directory of the other user."""
    with as_nobody():
        os.mkdir("theirs")
    box = Ring(shared_directory / "theirs/box", HELLO, 30 * S, RING_BYTES)
    with as_nobody():
        os.rename("theirs/box", "theirs/away")
        os.symlink(home_directories, "theirs/box")
    fill(box)
    box.keep()
    assert len([*Path("theirs/away").glob("*.part")]) > 1
    assert [*Path("theirs/away/kept").iterdir()]


# --- single files


def name_directory_link(home_directories: Path) -> str:
    os.symlink(home_directories, "theirs")
    return "theirs/out"


def name_file_link(home_directories: Path) -> str:
    os.symlink(home_directories / "out", "out")
    return "out"


def name_hard_link(home_directories: Path) -> str:
    """Makes a hard link to a file of root, which is possible with protected_hardlinks=0."""
    os.seteuid(0)
    os.link(home_directories / "out", "out")
    return "out"


def name_file_of_nobody(_: Path) -> str:
    Path("out").write_text("theirs", encoding="ascii")
    return "out"


def name_pipe_of_nobody(_: Path) -> str:
    os.mkfifo("out")
    return "out"


LINK = "is a symbolic link owned by another user (nobody); give its target"
FILE = "belongs to another user, or has other hard links; name a new file"
RECORD = "record", *SIM, "--duration", "1s"
STAT = "stat", *SIM, "--duration", "1s"
EXPORT = "export", "../recording"
WHY = "why", "../recording"


@pytest.mark.parametrize(("prepare", "command", "message"), [
    *((name_directory_link, command, LINK) for command in (RECORD, STAT, EXPORT, WHY)),
    *((name_file_link, command, LINK) for command in (STAT, EXPORT, WHY)),
    (name_file_link, RECORD, "it exists and is not a file"),
    *((name_hard_link, command, FILE) for command in (STAT, EXPORT, WHY)),
    *((name_file_of_nobody, command, FILE) for command in (STAT, EXPORT, WHY)),
    *((name_pipe_of_nobody, command, FILE) for command in (STAT, EXPORT, WHY)),
])  # fmt: skip
def test_files_chosen_by_another_user_are_not_written(
    shared_directory: Path,
    home_directories: Path,
    prepare: Callable[[Path], str],
    command: tuple[str, ...],
    message: str,
) -> None:
    record(home_directories.parent / "recording", single_counter_messages())
    with as_nobody():
        path = prepare(home_directories)
    result = run_in_process(*command, "-o", path, "--force")
    assert result.returncode == 1
    assert result.stderr.startswith(
        f"perftop: cannot {'record to' if command is RECORD else 'write'}"
    )
    assert message in result.stderr
    if prepare is name_file_of_nobody:
        assert Path(path).read_text(encoding="ascii") == "theirs"


def test_a_dropped_recording_removes_no_other_file(
    shared_directory: Path, home_directories: Path
) -> None:
    with as_nobody():
        os.mkdir("theirs")
    writer = Writer(shared_directory / "theirs/out", HELLO)
    with as_nobody():
        os.rename("theirs", "away")
        os.symlink(home_directories, "theirs")
    writer.discard()
    assert Path("away/out").exists()


def test_the_directory_for_several_machines_is_not_created_behind_a_link_of_another_user(
    shared_directory: Path, home_directories: Path
) -> None:
    with as_nobody():
        os.symlink(home_directories, "theirs")
    before = sorted(home_directories.iterdir())
    with pytest.raises(Failed, match="a symbolic link owned by another user"):
        headless.output_paths(Path("theirs/new"), ["a", "b"])
    assert sorted(home_directories.iterdir()) == before
    assert headless.output_paths(Path("ours"), ["a", "b"])[1] == Path("ours/b.perftop")
    assert Path("ours").stat().st_mode & 0o777 == 0o700


def test_a_ring_reports_its_size_at_the_end(shared_directory: Path) -> None:
    result = run_in_process("record", "--ring", "30s", "-o", "box", *SIM, "--duration", "1s")
    assert result.returncode == 0
    assert re.match(r"perftop: recorded \d+ frames, kept the last 1\.0 s ", result.stderr)
    Path("bad").write_bytes(b"no program")
    Path("bad").chmod(0o700)
    result = run_in_process(
        "record", "--ring", "30s", "-o", "box", *SIM[:1], "sim:smt-mix", "--", "./bad"
    )
    assert result.returncode == 126
    assert "kept the last" in result.stderr


def test_a_file_that_replaced_the_own_one_is_not_removed(shared_directory: Path) -> None:
    result = files.replace(Path("out"), b"ours")
    files.replace(Path("out"), b"of another perftop")
    files.remove(Path("out"), result)
    assert Path("out").exists()


@pytest.mark.parametrize("attack_time", ["before", "between", "at its end"])
def test_the_text_file_is_written_and_removed_in_its_opened_directory(
    shared_directory: Path, home_directories: Path, attack_time: str
) -> None:
    def swap() -> None:
        with as_nobody():
            os.rename("theirs", "away")
            os.symlink(home_directories, "theirs")

    with as_nobody():
        os.mkdir("theirs")
    one = Exporter(text_file=shared_directory / "theirs/out")
    one._page = type("Page", (), {"text": lambda *_, **__: b"numbers"})()
    if attack_time == "before":
        swap()
    else:
        one._write_file(0.0)
        assert Path("theirs/out").read_bytes() == b"numbers"
        swap()
    if attack_time != "at its end":
        with pytest.raises(Failed, match="is a symbolic link owned by another user"):
            one._write_file(FILE_PERIOD_S)
    one.on_end()


def test_the_cache_of_another_user_is_not_used(
    shared_directory: Path, home_directories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_directory / "cache"))
    recording = record(home_directories.parent / "recording", single_counter_messages())
    with as_nobody():
        os.makedirs("cache/perftop")
        os.symlink(home_directories, "cache/perftop/episodes")
    recording_index.write_cache_entry(recording, recording_index.cache_name(recording), b"found")
    assert recording_index.cached_index(recording) is None
    os.unlink("cache/perftop/episodes")
    os.mkdir("cache/perftop/episodes", 0o700)
    recording_index.write_cache_entry(recording, recording_index.cache_name(recording), b"found")
    assert recording_index.cached_index(recording) == b"found"


def keep_theme(_: Path) -> None:
    app = PerfTopApp(ScreenSource())
    app.restore_theme()
    app.action_theme()


def keep_first_start(_: Path) -> None:
    assert not config.is_first_start()


def keep_findings(_: Path) -> None:
    with pytest.raises(OSError, match="is a symbolic link owned by another user"):
        files.save_findings({"boot_id": "1", "time": 1, "wrong": [], "checks": []})


def keep_index(recording: Path) -> None:
    recording_index.write_cache_entry(recording, recording_index.cache_name(recording), b"found")


@pytest.mark.parametrize("write", [keep_theme, keep_first_start, keep_findings, keep_index])
def test_no_directory_of_ours_is_made_behind_a_link_of_another_user(
    shared_directory: Path,
    home_directories: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path], None],
) -> None:
    recording = record(home_directories.parent / "recording", single_counter_messages())
    with as_nobody():
        os.symlink(home_directories, "theirs")
    for name in ("STATE_HOME", "CACHE_HOME", "RUNTIME_DIR"):
        monkeypatch.setenv(f"XDG_{name}", str(shared_directory / "theirs/new"))
    write(recording)


WRITING_CALLS = re.compile(
    r"\.(mkdir|makedirs|unlink|rmtree|rename|link|symlink|chmod|fchmod|chown|fchown|bind|ftruncate"
    r"|truncate|mkfifo|mknod|mkstemp|mkdtemp|\w*Temporary\w*|write_text|write_bytes)\("
    r"|\bos\.(replace|remove)\(|\bshutil\.(copy|move)|\bFileIO\(|O_WRONLY|O_CREAT|O_RDWR"
    r'|\bopen\([^()]*"([wax]b?\+?|rb?\+b?)"'
)
WRITERS = {
    "base/files.py": "what all others call",
    "base/errors.py": "/dev/null; a report in a temporary file of a random name",
    "recording/writer.py": "relative to the descriptor of its directory",
    "recording/ring.py": "relative to descriptors of its directories",
    "tui/recording_index.py": "entries of the cache, in an OwnDirectory",
    "output/export/openmetrics.py": "a temporary file without a name",
    "process/serving.py": "the socket",
    "process/job.py": "an abstract socket, which has no file",
    "tui/app.py": "the terminal",
    "tui/config.py": "the mark of the first start, which base/files.py opens",
    "instruments/wake.py": "devices and files of the kernel",
    "registers/msr.py": "devices of CPUs, after a check of each directory on the way",
    "kernel/clues.py": "a netlink socket",
    "programming/journal.py": "the journal, relative to the descriptor of its directory",
    "programming/programmer.py": "a journal that is no longer needed",
    "__main__.py": "/dev/null",
}
"""Modules that open, create, change or remove files directly, and these files. Attacks of another
user on them are tested in this file or in tests/probe/programming, or have no target."""


def test_every_module_that_writes_files_is_listed() -> None:
    writers = {
        str(path.relative_to(top))
        for top in (ROOT / "app/perftop", ROOT / "probe/perfprobe")
        for path in top.rglob("*.py")
        if WRITING_CALLS.search(path.read_text(encoding="utf-8"))
    }
    assert writers == set(WRITERS)


# --- permitted files


def test_own_links_inherited_files_and_devices_are_permitted(
    shared_directory: Path, tmp_path: Path
) -> None:
    """They are own links, also to a missing file; files opened by the shell; and devices."""
    with as_nobody():
        os.mkdir("mine")
        os.symlink("mine", "link")
        os.symlink("file", "mine/out")
        for _ in range(2):
            with files.create(Path("link/out"), force=True) as file:
                file.write(b"x")
        assert Path("mine/file").read_bytes() == b"x"
        Writer(Path("link/recording"), HELLO).end()
        Ring(Path("link/../link/box"), HELLO, S, RING_BYTES).end()
        files.replace(Path("link/text"), b"x")
        os.symlink("loop", "loop")
        with pytest.raises(
            Failed, match=r"^cannot write loop: more than 40 symbolic links in the path"
        ):
            files.create(Path("loop"), force=True)
        with serving.listening_socket(Path("link/s")):
            assert Path("mine/s").is_socket()
        assert not Path("mine/s").exists()
    for path in ("/dev/null", "/dev/full", "/dev/fd/1", "/proc/self/fd/1"):
        files.create(Path(path), force=True).close()
    with (tmp_path / "theirs").open("wb") as file:  # as in `sudo perftop … -o /dev/stdout >FILE`
        os.fchown(file.fileno(), 65534, 65534)
        with files.create(Path(f"/dev/fd/{file.fileno()}"), force=True) as again:
            again.write(b"x")
    assert (tmp_path / "theirs").read_bytes() == b"x"


# --- sockets


@pytest.fixture
def after_bind(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Runs an action of the other user right after bind."""

    def arrange(act: Callable[[], None]) -> None:
        bound = serving.start_listening

        def and_then(*arguments: object) -> None:
            bound(*arguments)  # type: ignore[arg-type]
            with as_nobody():
                act()

        monkeypatch.setattr(serving, "start_listening", and_then)

    return arrange


@pytest.mark.parametrize(("owner", "mode", "message"), [
    (65534, 0o755, "another user could replace it there"),
    (0, 0o777, "another user could replace it there"),
    (0, 0o770, "another user could replace it there"),
    (0, 0o1777, None),
    (0, 0o755, None),
])  # fmt: skip
def test_a_socket_that_another_user_could_replace_is_refused(
    shared_directory: Path, home_directories: Path,
    after_bind: Callable[[Callable[[], None]], None],
    owner: int, mode: int, message: str | None,
) -> None:  # fmt: skip
    os.mkdir("at")
    os.chown("at", owner, 65534)
    os.chmod("at", mode)
    attempts: list[bool] = []

    def swap() -> None:
        attempts.append(True)
        with contextlib.suppress(PermissionError):
            os.unlink("at/s")
            os.symlink(home_directories / "out", "at/s")

    after_bind(swap)
    path = shared_directory / "at/s"
    if message is not None:
        raises = pytest.raises(Failed, match=f"^cannot listen on unix:{path}: .*{message}")
        with raises, serving.listening_socket(path, GROUP):
            pass
        assert not attempts
        return
    with serving.listening_socket(path, GROUP):
        assert attempts
        result = path.lstat()
        assert stat.S_ISSOCK(result.st_mode)
        assert (stat.S_IMODE(result.st_mode), result.st_gid) == (0o660, GROUP)
    assert not os.path.lexists(path)


def test_the_directory_of_a_socket_may_be_replaced_after_bind(
    shared_directory: Path, home_directories: Path, after_bind: Callable[[Callable[[], None]], None]
) -> None:
    with as_nobody():
        os.mkdir("theirs")
    os.mkdir("theirs/run", 0o755)

    def swap() -> None:
        os.rename("theirs/run", "theirs/away")
        os.symlink(home_directories.parent / "elsewhere", "theirs/run")

    (home_directories.parent / "elsewhere").mkdir()
    (home_directories.parent / "elsewhere/s").write_text("precious", encoding="ascii")
    after_bind(swap)
    with serving.listening_socket(shared_directory / "theirs/run/s", GROUP):
        assert Path("theirs/away/s").stat().st_gid == GROUP
    assert not Path("theirs/away/s").exists()
    result = (home_directories.parent / "elsewhere/s").stat()
    assert result.st_gid == 0
    assert stat.S_IMODE(result.st_mode) & 0o077 == 0o044


@pytest.mark.parametrize("replacement", ["their socket", "a file of root"])
def test_replacing_the_directory_of_a_socket_before_bind_is_detected(
    shared_directory: Path,
    home_directories: Path,
    monkeypatch: pytest.MonkeyPatch,
    replacement: str,
) -> None:
    """The socket would be bound in a directory other than the checked one."""
    with as_nobody():
        os.mkdir("theirs")
    os.mkdir("theirs/run")
    os.chmod("theirs/run", 0o1777)  # noqa: S103 - as /tmp is
    bound = serving.start_listening

    def swap_directories(*arguments: object) -> None:
        with as_nobody(), socket.socket(socket.AF_UNIX) as theirs:
            if replacement == "their socket":
                theirs.bind("theirs/run/s")
            os.rename("theirs/run", "theirs/away")
            os.mkdir("theirs/run")
        if replacement == "a file of root":  # possible with protected_hardlinks=0
            os.link(home_directories / "out", "theirs/away/s")
        bound(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(serving, "start_listening", swap_directories)
    raises = pytest.raises(Failed, match="another user replaced its directory")
    with raises, serving.listening_socket(shared_directory / "theirs/run/s", GROUP):
        pass
    assert Path("theirs/away/s").stat().st_gid != GROUP
