"""Runs perftop in a VM whose kernel has a core PMU that other programs also use. Prints perftop's
reports, a line for each row. Needs the script that boots the VM (guest.py), and environments made
with Debian's python3 in which perftop is installed: the present one, and older ones.

Run by hand, on an idle machine: python tests/bench/perf_core.py GUEST.PY VENV[,VENV...] [ROW...]
(half a minute for each row)
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

TURNS = (
    "perf stat -a -e branches,branch-misses,cache-misses,cache-references,r81d0,r82d0,r01d1,r0151"
    " sleep 1000 >/dev/null 2>&1 & OTHER=$!; sleep 1; "
)
OTHER_PROGRAM = "python3 /rig/stranger.py --pinned --for"
MANY_EVENTS = ",".join(f"r{umask:02x}d0" for umask in range(0x80, 0x9E))
CPU3 = "/sys/devices/system/cpu/cpu3/online"
MODES = ("stat -n 99", "stat -n 99 -e branches", "stat -n 99 --smt-method traced",
         "why --duration 30s", "record --ring 1m -o /tmp/ring", "exporter --listen 127.0.0.1:9999",
         "selftest", "stat -e branches -- sleep 8")  # fmt: skip


class Row(NamedTuple):
    what: str
    script: str
    """Commands in the VM; PERFTOP stands for the program."""
    settings: tuple[str, ...] = ()


def guests(mode: str) -> str:
    """Runs a mode beside a KVM device, and prints how many of its events include guests."""
    return (
        f"PERFTOP {mode} >/dev/null 2>&1 & MODE=$!; for try in $(seq 30); do sleep .3;"
        " grep -q = /sys/kernel/debug/vperf && break; done;"
        f" echo {mode}: $(grep include_guests /sys/kernel/debug/vperf);"
        " kill $MODE; (sleep 4; kill -9 $MODE) 2>/dev/null & wait $MODE; "
    )


ROWS = {
    "A": Row("beside events that take turns: causes",
             TURNS + "PERFTOP why --duration 4s; PERFTOP stat --json -n 3; kill $OTHER"),
    "B": Row("... which end after interval 6: counters",
             TURNS + 'python3 /rig/drive.py "6:kill $OTHER" -- PERFTOP stat --json -n 12'),
    "C": Row("events by turns: values", "PERFTOP stat --json -n 2 --sample 10ms -e branches,"
             f"branch-misses,cache-misses; PERFTOP stat --json -n 2 -e {MANY_EVENTS}"),
    "D": Row("-e beside the NMI watchdog", "PERFTOP stat --json -n 2 -e branches",
             ("perf.watchdog=1",)),
    "D2": Row("-e beside a pinned pair; in braces; ref-cycles",
              f"{OTHER_PROGRAM} 40 c4 c5 & sleep 1; PERFTOP stat --json -n 2 -e branches; kill $!;"
              " PERFTOP stat --json -n 2 -e '{branches,branch-misses}';"
              " PERFTOP stat --json -n 2 -e ref-cycles"),
    "E": Row("4 counters and no fixed ones: reasons", "PERFTOP stat --json -n 1", ("fixed=0",)),
    "F": Row("a pinned group of 5 s after interval 2",
             f'python3 /rig/drive.py "2:{OTHER_PROGRAM} 5 c4 c5 81d0 82d0" -- '
             "PERFTOP stat --json -n 12"),
    "G": Row("six starts: reasons for ref",
             "for n in $(seq 6); do PERFTOP stat --json -i 300ms -n 1; done"),
    "H": Row("dead counters: source and method", "PERFTOP stat --json -n 3", ("frozen=1",)),
    "I": Row("no counter for ref: doctor", "PERFTOP doctor; PERFTOP stat -n 1 -e ref-cycles",
             ("fixed=2",)),
    "K": Row("what the kernel refuses: events", "PERFTOP events"),
    "L": Row("CPU 3 comes on after interval 2", "".join(
        f"echo 0 > {CPU3}; python3 /rig/drive.py '2:echo 1 > {CPU3}' -- "
        f"PERFTOP stat --json -n 10{source}; " for source in ("", " --source os"))),
    "M": Row("events that include guests", "mknod /dev/kvm c 10 232; "
             + "".join(map(guests, MODES)) + "rm /dev/kvm; echo without KVM; " + guests(MODES[0])),
}  # fmt: skip
KEYS = "util", "busy_hz", "ipc", "halt", "idle"
SHOWN = "You have", "without it", "not:", "(n/a", "guests", "## at", "KVM", "perftop:", "unknown:"


def counter_facts(line: str) -> str:
    """Returns the facts about counters in a line of output; '' if it has none."""
    if not line.startswith("{"):
        return line if any(words in line for words in SHOWN) else ""
    data: dict[str, Any] = json.loads(line)
    if data["type"] == "hello":
        reasons = {m["why"] for m in data["missing"] if m["what"] in ("ref", "cycles")
                   or "instructions" in m["what"]}  # fmt: skip
        return f"source {data['source']}, {data['smt_method']}; {'; '.join(sorted(reasons))}"
    if data["type"] == "episode":
        return f"episode {data['kind']} {data['cause']} {data['depth']}"
    if data["type"] != "interval":
        return ""
    values = [[key for key, value in cpu.items() if value is None and key in KEYS]
              for cpu in data["cpus"]]  # fmt: skip
    events = [value is not None for cpu in data["cpus"] for key, value in cpu.items()
              if key.startswith("e.")]  # fmt: skip
    return (
        f"{data['seq']}: n/a by CPU {values}, {sum(events)} of {len(events)} events, "
        f"{sum(len(cpu['suspect']) for cpu in data['cpus'])} suspect"
    )


def main(guest: str, venvs: str, *names: str) -> int:
    for name in names or ROWS:
        row = ROWS[name]
        script = "".join(
            f"echo; echo '## at {venv}'; ({row.script.replace('PERFTOP', venv + '/bin/perftop')})"
            " 2>&1; " for venv in venvs.split(",")
        )  # fmt: skip
        argv = [sys.executable, guest, "run", "--perf", "--load", "--timeout", "200"]
        argv += [word for setting in row.settings for word in ("--set", setting)]
        argv += [word for venv in venvs.split(",") for word in ("--add", venv)]
        result = subprocess.run([*argv, "--", "bash", "-c", script], capture_output=True, text=True,
                                check=False)  # fmt: skip
        print(f"{name}: {row.what}", flush=True)
        for line in result.stdout.splitlines():
            if text := counter_facts(line):
                print(f"    {text[:150]}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
