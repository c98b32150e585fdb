"""The process that mounts a machine and serves it: `python -m fakekernel.server DIR SPEC`.

DIR becomes the root of the machine; SPEC is JSON, the fields of machine.Spec. Commands are lines on
stdin, answers are lines on stdout; the first line reports the mount. The process unmounts and ends
when stdin closes. A second process unmounts if the first is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from fakekernel import fuse
from fakekernel.machine import Machine, Spec
from fakekernel.tree import build, update_devices


class Control:
    def __init__(self, machine: Machine, server: fuse.Server) -> None:
        self.machine, self.server, self.root = machine, server, server.root

    def answer(self, line: str) -> dict[str, Any]:
        try:
            request = json.loads(line)
            with self.machine.lock:
                return getattr(self, "do_" + request.pop("cmd"))(**request) or {"ok": True}
        except Exception as error:  # noqa: BLE001 - the client raises it
            return {"error": f"{type(error).__name__}: {error}"}

    def do_truth(self, t0: float, t1: float) -> dict[str, Any]:
        return self.machine.truth(round(t0 * 1e9), round(t1 * 1e9))

    def do_regs(self) -> dict[str, Any]:
        return {"cpus": {str(p.cpu): p.written_registers() for p in self.machine.cpus if p.initial}}

    def do_peek(self, cpu: int, reg: int) -> dict[str, Any]:
        return {"value": self.machine.cpus[cpu].read(reg)}

    def do_poke(self, cpu: int, reg: int, value: int) -> None:
        self.machine.cpus[cpu].poke(reg, value)

    def do_writes(self) -> dict[str, Any]:
        return {"writes": list(self.machine.log)}

    def do_options(self, **options: Any) -> None:
        """Changes the behaviour of reads and writes: reads="zero", writes="eperm"."""
        for name, value in options.items():
            if name not in ("reads", "writes", "write_s"):
                raise ValueError(f"{name} cannot be changed")
            setattr(self.machine.spec, name, value)

    def do_online(self, cpu: int, online: bool) -> None:
        processor = self.machine.cpus[cpu]
        processor.online = online
        update_devices(self.root, self.machine, processor)

    def do_reset(self, cpu: int) -> None:
        """Restores all registers that were ever written, atomically."""
        processor = self.machine.cpus[cpu]
        for reg, value in processor.initial.items():
            processor.poke(reg, value)

    def do_file(self, path: str, text: str) -> None:
        self.root.text(path, text)


def guard(path: Path) -> int:
    """Forks a process that unmounts if this process is killed. Writing to the returned descriptor
    ends it."""
    waiting, done = os.pipe()
    if os.fork():
        os.close(waiting)
        return done
    status = 0
    try:
        os.setsid()
        os.close(done)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        if not os.read(waiting, 1):
            fuse.unmount(path)
    except OSError:
        status = 1
    os._exit(status)


def serve_commands(control: Control) -> None:
    for line in sys.stdin:
        print(json.dumps(control.answer(line)), flush=True)


def main(path: Path, spec: Spec) -> int:
    machine = Machine(spec)
    root = build(machine)
    server = fuse.Server(root, machine.lock)
    done = guard(path)
    fd = fuse.mount(path)
    try:
        threading.Thread(target=server.serve, args=(fd,), daemon=True).start()
        print(json.dumps({"root": str(path), "tsc_hz": machine.model.tsc_hz}), flush=True)
        serve_commands(Control(machine, server))
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        with contextlib.suppress(OSError):  # another process has unmounted it
            fuse.unmount(path)
        with contextlib.suppress(OSError):
            os.write(done, b"x")
    return 1 if server.failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Spec(**json.loads(sys.argv[2]))))
