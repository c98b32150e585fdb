"""Starts a fake kernel for a test, which can read its truth and change its registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fakekernel import fuse

CAP_SYS_ADMIN = 21
STOP_S = 100  # time limit in s, long because other programs may keep all CPUs busy


@cache
def unavailable() -> str:
    """The reason why no fake kernel can be mounted here; '' if it can."""
    if not Path("/dev/fuse").exists():
        return "no /dev/fuse"
    status = Path("/proc/self/status").read_text()
    caps = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    if not int(caps, 16) >> CAP_SYS_ADMIN & 1:
        return "mount(2) needs root (CAP_SYS_ADMIN)"
    with tempfile.TemporaryDirectory() as directory:
        try:
            os.close(fuse.mount(Path(directory)))
        except OSError as error:
            return f"FUSE cannot be mounted: {error.strerror}"
        fuse.unmount(Path(directory))
    return ""


class FakeKernel:
    """A machine mounted at `root`: `with FakeKernel(tmp_path / "root", model="zen3") as fake:`.

    Keywords are the fields of machine.Spec. Times are seconds of CLOCK_MONOTONIC_RAW.
    """

    def __init__(self, root: Path, **spec: Any) -> None:
        self.root = root
        self._made = not root.exists()
        root.mkdir(parents=True, exist_ok=True)
        here = str(Path(__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fakekernel.server", str(root), json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": here},
            start_new_session=True,
            text=True,
        )
        try:
            self.hello = self._answer()
        except BaseException:
            self.stop(check=False)
            raise

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the fake kernel died with {self.process.wait(STOP_S)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def ask(self, cmd: str, **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"cmd": cmd, **arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def truth(self, t0: float, t1: float) -> dict[str, Any]:
        return self.ask("truth", t0=t0, t1=t1)

    def regs(self) -> dict[int, dict[int, tuple[int, int]]]:
        """All registers that were ever written, by CPU: the value before the first write, and the
        current value."""
        cpus = self.ask("regs")["cpus"]
        return {
            int(cpu): {int(reg, 16): (v["initial"], v["now"]) for reg, v in regs.items()}
            for cpu, regs in cpus.items()
        }

    def changed(self) -> dict[int, dict[int, tuple[int, int]]]:
        """The registers whose current value differs from that before the first write."""
        found = {
            cpu: {reg: pair for reg, pair in regs.items() if pair[0] != pair[1]}
            for cpu, regs in self.regs().items()
        }
        return {cpu: regs for cpu, regs in found.items() if regs}

    def peek(self, cpu: int, reg: int) -> int:
        return int(self.ask("peek", cpu=cpu, reg=reg)["value"])

    def poke(self, cpu: int, reg: int, value: int) -> None:
        self.ask("poke", cpu=cpu, reg=reg, value=value)

    def writes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("writes")["writes"]
        return found

    def stop(self, check: bool = True) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if self._made:
            self.root.rmdir()
        if check and code:
            raise RuntimeError(f"the fake kernel ended with {code}: see its stderr")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(check=kind is None)


class Msr:
    """An open register file of a fake kernel."""

    def __init__(self, kernel: FakeKernel, cpu: int = 0, flags: int = os.O_RDWR) -> None:
        self.fd = os.open(kernel.root / f"dev/cpu/{cpu}/msr", flags)

    def read(self, reg: int) -> int:
        return int.from_bytes(os.pread(self.fd, 8, reg), "little")

    def write(self, reg: int, value: int) -> None:
        os.pwrite(self.fd, value.to_bytes(8, "little"), reg)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
