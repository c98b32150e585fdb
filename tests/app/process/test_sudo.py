"""With --sudo only the probe runs as root, regardless of the user's environment and working
directory, even if sudo keeps the environment."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest
from nightly import cases_by_day
from waiting import MAX_WAIT_S

import perfprobe
import perftop
from perftop.process import launch

MODULES = ("perfprobe", "msgpack", "json", "argparse", "numpy", "sitecustomize", "usercustomize")
"""Names of programs that the user provides."""
SUDO = """#!/bin/sh
shift 2
exec "$@"
"""


@pytest.fixture
def user_directory(tmp_path: Path) -> Path:
    """A directory with modules that write a file when they run, including packages of the user."""
    code = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + '\\n')\n"
    version = Path(site.getusersitepackages()).parent.name
    for folder in (tmp_path, tmp_path / ".local/lib" / version / "site-packages"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in MODULES:
            (folder / f"{name}.py").write_text(code)
        (folder / "start.pth").write_text(f"import sys; exec({code!r})\n")
    fake = tmp_path / "bin" / "sudo"
    fake.parent.mkdir()
    fake.write_text(SUDO)
    fake.chmod(0o755)
    return tmp_path


VARIABLES = {
    "PYTHONPATH": "{}", "PYTHONHOME": "{}", "PYTHONUSERBASE": "{}/.local", "HOME": "{}",
    "PYTHONSTARTUP": "{}/json.py", "PYTHONINSPECT": "1", "PYTHONPLATLIBDIR": "{}",
    "PYTHONSAFEPATH": "", "PYTHONIOENCODING": "utf-16", "PYTHONBREAKPOINT": "usercustomize.x",
    "PYTHONPYCACHEPREFIX": "{}", "PYTHONCASEOK": "1", "PYTHONMALLOC": "debug",
    "PYTHONEXECUTABLE": "{}/bin/sudo", "__PYVENV_LAUNCHER__": "{}/bin/sudo",
    "XDG_CONFIG_HOME": "{}", "XDG_STATE_HOME": "{}", "XDG_CACHE_HOME": "{}",
    "XDG_RUNTIME_DIR": "{}", "TMPDIR": "{}", "TERM": "../../{}", "TERMINFO": "{}",
    "LC_ALL": "xx_XX.none", "LC_CTYPE": "C", "LOCPATH": "{}", "GCONV_PATH": "{}",
    "LD_LIBRARY_PATH": "{}", "CC": "{}/bin/sudo",
}  # fmt: skip
SETS = [[*VARIABLES], *([name] for name in VARIABLES)]


@pytest.mark.parametrize("names", cases_by_day(SETS, SETS[:2]))
def test_no_variable_lets_a_probe_run_by_root_load_user_code(
    user_directory: Path, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{user_directory / 'bin'}:{os.environ['PATH']}")
    for name in names:
        monkeypatch.setenv(name, VARIABLES[name].format(user_directory))
    result = subprocess.run(
        launch.probe_command("topology", sudo=True),
        cwd=user_directory, env=launch.probe_environment(), umask=0, capture_output=True,
        timeout=MAX_WAIT_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, b"")
    assert json.loads(result.stdout)["cpus"]
    assert not (user_directory / "ran").exists(), (user_directory / "ran").read_text()


@pytest.mark.parametrize("name", ["PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__"])
def test_no_variable_chooses_the_program_that_root_runs(name: str) -> None:
    code = "from perftop.process import launch; print(launch.probe_command(sudo=True)[3])"
    folders = [str(Path(str(module.__file__)).parents[1]) for module in (perfprobe, perftop)]
    environment = {name: "/bin/false", "PYTHONPATH": os.pathsep.join([*folders, *sys.path])}
    program = subprocess.check_output(
        [sys.executable, "-c", code], env=os.environ | environment, text=True, timeout=MAX_WAIT_S
    )
    assert program.strip() == os.path.abspath(sys.executable)  # noqa: PTH100
