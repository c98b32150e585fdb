"""What became of a command, line by line."""

from __future__ import annotations

import re
from typing import Any

from examples import output
from fakes import Machine, seen

from perftop.output.run_summary import summary_line
from perftop.output.stat_text import block, headline
from perftop.session.session import Session

RUN = {
    "pid": 1, "status": 0, "wall_s": 84.21, "user_s": 771.4, "sys_s": 45.2, "slack_s": 0.004,
    "missed": [], "switches": 120_000, "page_faults": 4_100_000, "disk_faults": 12,
    "peak_bytes": 612_000_000,
}  # fmt: skip
JOB = {"cpus": [0, 1], "seen_s": 810.0, "waited_s": 13.2, "disk_s": 2.1, "behind": []}
BUSY = {"cpus": 16, "all_s": 42.0, "one_s": 21.8, "between_s": 20.4, "none_s": 0.01, "alone": "ld"}
OTHERS = {"cpus": 0.3, "most": {"pid": 812, "comm": "chrome", "ran_s": 21.0, "cpus": [3]}}
TOTALS = {"instructions": 91.3e9, "cycles": 81.2e9, "below_ceiling": 0.12}


def made(**more: Any) -> tuple[Session, dict[str, Any]]:
    session, _ = seen(Machine(cores=2))
    line = summary_line(session, {}, 84.2) | {"run": RUN, "job": JOB, "busy": BUSY}
    line |= {"others": OTHERS, "totals": TOTALS, "energy_j": 6400.0, "own_cpu_s": 0.34}
    line["causes"] = [{"kind": "turbo-drop", "cause": "power-pl2"}]
    return session, line | more


def told(name: str, **more: Any) -> str:
    session, line = made(**more)
    found = [text for text in block(session, ["make", "-j16"], line) if text.startswith(name)]
    return found[0].removeprefix(name).strip() if found else ""


def test_every_line_of_a_build() -> None:
    assert told("command") == "make -j16"
    assert told("exit status 0") == "user 771.400 s   system 45.200 s   measured 0.004 s longer"
    assert told("CPUs busy") == "all 16 for 42.0 s, one for 21.8 s (ld), between for 20.4 s"
    assert told("clock").endswith("GHz, below it 12 % of the time: Power limit PL2")
    assert told("waits") == "13.20 s for a CPU and 2.10 s for the disk, all tasks together"
    assert told("others") == "at least 0.3 CPUs on average; most: chrome[812], 21.0 s on CPU 3"
    assert told("energy") == "6.40 kJ, 76.0 W   own cost 0.4 % of one CPU"
    assert told("used") == (
        "91.3 G instructions in 81.2 G cycles on all CPUs, 120 k switches, "
        "4.1 M page faults (12 from disk), 612.0 MB in its largest process"
    )


def test_the_page_shows_these_lines() -> None:
    few = RUN | {"disk_faults": 0, "peak_bytes": None}
    session, line = made(cpus=[{}] * 16, run=few)
    first, gap, *rest = output("command", "make took")
    assert (first, gap) == (headline("make", line), "")
    numbers = re.compile("[0-9.]+")  # clock and work are of another machine
    lines = block(session, ["make", "-j16"], line)
    assert [numbers.sub("0", text) for text in rest] == [numbers.sub("0", text) for text in lines]


def test_what_is_not_known_is_left_out() -> None:
    assert told("waits", job=None) == told("others", others=None) == told("CPUs", busy=None) == ""
    assert told("waits", job=JOB | {"disk_s": None}) == "13.20 s for a CPU, all tasks together"
    assert told("waits", job=JOB | {"seen_s": 9.0}).startswith("at least 13.20 s for a CPU")
    nothing = dict.fromkeys(("switches", "page_faults", "disk_faults", "peak_bytes"))
    assert told("used", run=RUN | nothing, totals={}) == ""
    assert "not known" in told("exit status 0", run=RUN | {"slack_s": None})


def test_the_first_sentence_tells_of_one_cpu_that_worked_alone_for_long() -> None:
    _, line = made(cpus=[{}] * 16)
    assert headline("make", line).endswith(" One CPU alone worked for 21.8 s.")
    _, line = made(busy=BUSY | {"one_s": 1.0})
    assert "alone" not in headline("make", line)
