"""Where the time of a command went, in one sentence."""

from __future__ import annotations

from typing import Any

from perftop.output.stat_text import headline


def line(used_s: float, wall_s: float, **job: Any) -> dict[str, Any]:
    told = {"cpus": [1], "seen_s": used_s, "waited_s": None, "behind": []} | job
    return {
        "run": {"user_s": used_s, "sys_s": 0.0, "wall_s": wall_s},
        "job": told if job else None,
        "cpus": [{}] * 16,
    }


HOG = {"pid": 6450, "comm": "hog", "ran_s": 5.0}


def test_one_cpu_and_what_it_waited() -> None:
    told = headline("/usr/bin/job", line(3.0, 8.65, waited_s=5.65, behind=[HOG]))
    assert told == (
        "job took 8.65 s: it ran 3.00 s on CPU 1 and waited 5.65 s for a CPU, mostly behind "
        "hog[6450]."
    )


def test_a_time_whose_end_nobody_saw_is_a_bound() -> None:
    """perftop was stopped when the command ended."""
    stopped = line(1.0, 7.5)
    stopped["run"]["late_s"] = 4.5
    assert headline("sleep", stopped).startswith("sleep took at most 7.50 s: it ran")


def test_many_cpus() -> None:
    assert headline("make", line(816.6, 84.21, cpus=[0, 1])) == (
        "make took 84.21 s and kept 9.7 of 16 CPUs busy."
    )
    told = headline("make", line(816.6, 84.21, waited_s=13.2))
    assert told.endswith("CPUs busy; its tasks waited 13.20 s for a CPU.")


def test_who_ran_little_beside_it_is_not_to_blame() -> None:
    told = headline("job", line(3.0, 8.65, waited_s=5.65, behind=[HOG | {"ran_s": 1.0}]))
    assert "hog" not in told


def test_what_was_not_seen_is_not_told_as_nothing() -> None:
    assert headline("job", line(3.0, 8.65)) == "job took 8.65 s: it ran 3.00 s."
    told = headline("job", line(3.0, 8.65, waited_s=1.0, seen_s=2.0))
    assert "waited at least 1.00 s" in told


def test_a_wait_too_short_to_matter_is_left_out() -> None:
    assert "waited" not in headline("job", line(3.0, 8.65, waited_s=0.05))


def test_a_name_from_outside_is_harmless() -> None:
    assert "\x1b" not in headline("\x1b[2Jx", line(1.0, 1.0))
