"""A session as text: heading, episodes, and final lines on the command and on the minimum, mean,
maximum and fifth percentile of each measure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from math import isnan

import numpy as np

from perftop.base.text import (
    Line,
    clock_ghz,
    clock_time,
    count_noun,
    cpu_list,
    json_number,
    long_duration,
    percent,
    ranges,
    safe_text,
    scale,
    supports_unicode,
    whole_percent,
)
from perftop.draw.columns import Column
from perftop.model.confidence import evidence_text
from perftop.model.kinds import KINDS, Episode, cause_of
from perftop.model.numbers import Number
from perftop.model.smt import STATES
from perftop.output.report import MIN_RECORDED_SHARE, seen_share
from perftop.output.run_summary import (
    mean_both_share,
    state_means,
    summary_line,
    time_use_lines,
)
from perftop.output.sentences import command_name, cpus_text, job_name, sentence, text, victims
from perftop.output.stat_lines import (
    chosen_numbers,
    has_states,
    number_text,
    seconds_text,
    shown_unit,
    table_line,
)
from perftop.output.why_report import report
from perftop.output.why_text import cause_rows, texts
from perftop.process.measurement import Measurement
from perftop.session.episodes import EpisodeTally
from perftop.session.session import Session
from perftop.session.values import LISTED_NAMES, lasting_reasons, missing_text

MAX_CPU_LIST, MAX_SENTENCE = 60, 200
"""Maximum characters of a list of CPUs, and of the sentence about an episode."""
SPAN_NAMES = ("min", "mean", "max", "p5")
LABEL_WIDTH, SPAN_WIDTH = 24, 9
DOCTOR_REASONS = "reasons: perftop doctor"
"""Words instead of the reasons for missing numbers, after a command."""
_GROUP_TITLES = {"job": "job CPUs", "rest": "others"}
"""Titles of the columns with means over the job's CPUs, which other tasks may have used too, and
over the other CPUs."""


def heading(session: Session, reasons: str = "the reasons are at the end") -> list[str]:
    """Returns a description of the machine and, if there are any, a line about the expected numbers
    that cannot be measured here. `reasons`: where to find the reasons."""
    hello = session.hello
    cores = count_noun(len(session.selected_cores()), "core")
    cpus = count_noun(len(session.selected), "CPU")
    model = hello.identity.name or "unknown CPU"
    lines = [f"# {hello.host} · {model} · {cores} / {cpus} · source {hello.source}"]
    missing_keys = {missing.what for missing in lasting_reasons(session)}
    names = dict.fromkeys(name for key, name in LISTED_NAMES.items() if key in missing_keys)
    return [*lines, f"# n/a: {', '.join(names)} ({reasons})"] if names else lines


def missing_lines(session: Session) -> list[str]:
    """Returns a line for each reason why numbers cannot be measured on this machine."""
    return [f"# {reason}" for reason in missing_text(session)]


def episode_line(session: Session, episode: Episode) -> str:
    """Returns an episode in one line: the screen's sentence, the time, all its CPUs if the sentence
    does not name them, and the evidence."""
    words = _sentence(session, episode)
    cpus_name = cpus_text(session.topology, episode.cpus, MAX_CPU_LIST) if episode.cpus else ""
    cpus_name = cpus_name if "(+" in words else ""
    parts = f"! {words}", cpus_name, evidence_text(episode.cause, episode.evidence)
    return " · ".join(part for part in parts if part)


def _sentence(session: Session, episode: Episode) -> str:
    is_ended = episode.end_ns is not None
    names = () if is_ended else victims(session, [episode], session.tasks)
    start = clock_time(session.unix_s(episode.start_ns))
    lasted_ns = (episode.end_ns or 0) - episode.start_ns
    time = f"since {start}"
    if is_ended:
        time = f"for {long_duration(lasted_ns)} from {start}" if lasted_ns else f"at {start}"
    parts = sentence(
        session.topology, [episode], names, past_tense=is_ended, when=time, max_length=MAX_SENTENCE
    )
    return text(parts)


def ending_lines(
    session: Session, tally: EpisodeTally, line: Line,
    requested_keys: Sequence[str] | None = None, *, brief: bool = False,
) -> list[str]:  # fmt: skip
    """Returns the final lines: about the command, if any, and the summary. `line`: the summary as
    JSON. `requested_keys`: metrics to summarise. `brief`: after a command, only the lines about
    it."""
    has_run = line["run"] is not None
    lines = _run_lines(session, line) if has_run else []
    if session.frames < 2 or (brief and has_run):
        return lines
    elapsed_s, metrics = line["elapsed_s"], session.evaluator.metrics
    samples = count_noun(session.frames - 1, "sample")
    cpus = count_noun(len(session.selected), "CPU")
    numbers = [n for n in chosen_numbers(session, requested_keys) if n.key in metrics]
    lines += ["", f"{elapsed_s:.3f} s, {samples} of {cpus}"]
    lines += _measure_lines(line, numbers)
    lines += _state_lines(line) if has_states(session, requested_keys) else []
    shares = session.run.span.read_shares()
    if partly_read := [number for number in numbers if number.key in shares]:
        lowest = min(shares[number.key] for number in partly_read)
        labels = ", ".join(number.label for number in partly_read)
        share = whole_percent(lowest)
        lines.append(f"means cover at least {share} of the samples of each CPU: {labels}")

    job, run = line["job"], line["run"]
    if job is not None and run is not None:
        cpus_name = cpus_text(session.topology, job["cpus"], MAX_CPU_LIST)
        used_s = run["user_s"] + run["sys_s"]
        seen_text = f"task records cover {job['seen_s']:.2f} of its {used_s:.2f} s"
        lines.append(f"job on {cpus_name}: {seen_text}; short-lived processes can be missed")
    energy_j, dram_j = line["energy_j"], line["energy_dram_j"]
    if energy_j is not None and elapsed_s:
        dram = f" · memory {dram_j:.1f} J" if dram_j is not None else ""
        lines.append(f"energy {energy_j:.1f} J · {energy_j / elapsed_s:.1f} W{dram}")
    for kind, causes in tally.counts_by_cause.items():
        counts = ", ".join(f"{cause} {count}" for cause, count in causes.items())
        lines.append(f"{kind}: {sum(causes.values())} ({counts})")
    lines += [
        f"worst {worst.kind}: {_sentence(session, worst)}" for worst in tally.worst_episodes()
    ]
    # on another machine, only the probe's CPU time is known
    has_own_time = "own_cpu_s" in line
    name, own_s = ("own", line["own_cpu_s"]) if has_own_time else ("probe", line["probe_cpu_s"])
    share_text = "" if own_s is None else f"{100 * own_s / elapsed_s:.1f} % of one CPU"
    cost = "n/a" if own_s is None else f"{own_s:.2f} s CPU ({share_text})"
    dropped_count, suspect_count = session.dropped_frames, session.run.span.suspect_count
    return [
        *lines,
        f"{name} cost {cost} · dropped frames {dropped_count} · suspect samples {suspect_count}",
    ]


def _run_lines(session: Session, line: Line) -> list[str]:
    """Returns a sentence about the command, how it spent its time, what held it back, and its
    numbers. What is known of another watched job is left out."""
    argv, unicode = session.command_run.argv, supports_unicode()
    name, bar, causes, awaited = job_name(session), list[str](), list[str](), ""
    if session.run.tracks_losses and (session.watches_command or name is None):
        why = report(session, is_past=True)
        bar = time_use_lines(
            session.run.phases(), unicode=unicode, used_s=session.command_run.cpu_s
        )
        if why.named_findings:
            causes = texts([*cause_rows(why), []], colour=False, unicode=unicode)
        awaited = "".join(finding.awaited for finding in why.findings)
    if name is None or not session.watches_command:
        name = command_name(argv)
    answer = headline(name, line, awaited)
    lines = ["", answer, "", *bar, *([""] if bar else []), *causes]
    return lines + command_lines(session, line)


# --- tables of measures and causes


def _measure_lines(line: Line, numbers: Sequence[Number]) -> list[str]:
    """Returns the table of measures, with means over the job's CPUs and over the others."""
    groups = {title: line[key] for key, title in _GROUP_TITLES.items() if line[key] is not None}
    columns = [Column("", "", LABEL_WIDTH)]
    columns += [Column("", title, SPAN_WIDTH) for title in (*SPAN_NAMES, *groups)]
    lines = [table_line(columns, [column.heading for column in columns])]
    for number in numbers:
        measures = [(line["machine"][number.key], span) for span in SPAN_NAMES]
        measures += [(group[number.key], "mean") for group in groups.values()]
        cells = [number_text(number, measure and measure[span]) for measure, span in measures]
        label = f"{number.label} {shown_unit(number)}".rstrip()
        lines.append(table_line(columns, [label, *cells]))
    return lines


def _state_lines(line: Line) -> list[str]:
    """Returns the mean of each SMT state over the cores with known states."""
    parts, known_cores = [], 0
    for state in STATES:
        means = state_means(line, state)
        if means:
            parts.append(f"{state} {percent(sum(means) / len(means))} %")
            known_cores = max(known_cores, len(means))
    mean = f"SMT states, mean of {count_noun(known_cores, 'core')}"
    return [f"{mean}: {' · '.join(parts)}"] if parts else []


# --- lines about a command

MAX_NAME_LENGTH, MAX_COMMAND_LENGTH = 24, 100
MAX_SINGLE_TASK_CPUS = 1.05
"""Maximum mean number of busy CPUs of a command that is reported as a single task."""
MIN_STATE_S = 0.1
"""Minimum time in s of stops or sleeps of threads that is reported."""
MIN_WAIT_SHARE = 0.01
"""Minimum waiting time that is reported, as a share of the elapsed time."""
MIN_SINGLE_CPU_SHARE = 0.1
"""Minimum share of the elapsed time with a single busy CPU that is reported."""
LABEL_CHARACTERS = 13
"""Width of the labels of the lines about a command."""


def _seen_share(line: Line) -> float:
    """Returns the share of the command's running time that task records cover."""
    run, job = line["run"], line["job"]
    seen_s = 0.0 if job is None else job["seen_s"]
    return seen_share(seen_s, run["user_s"] + run["sys_s"])


def _quota_and_cpu_wait_s(job: Line | None) -> tuple[float, float | None]:
    """Returns the seconds for which a quota stopped the job's threads, and those for which they
    waited for a CPU; None if unknown. The kernel adds both to one sum."""
    if job is None or job["waited_s"] is None:
        return 0.0, None
    quota_s = job.get("quota_s") or 0.0
    return quota_s, max(0.0, job["waited_s"] - quota_s)


def headline(command: str, line: Line, awaited: str = "") -> str:
    """Returns a sentence about the time of the command and its children. `line`: the summary.
    `awaited`: as in Finding."""
    run, job = line["run"], line["job"]
    used_s, wall_s = run["user_s"] + run["sys_s"], run["wall_s"]
    bound_text = "at most " if run.get("late_s") else ""
    text = f"{safe_text(command, MAX_NAME_LENGTH)} took {bound_text}{seconds_text(wall_s)}"
    if wall_s < 0.1:
        return f"{text}."
    quota_s, waited_s = _quota_and_cpu_wait_s(job)
    waits = [f"{seconds_text(quota_s)} for its CPU quota"] if quota_s >= MIN_STATE_S else []
    if job is not None and waited_s and waited_s >= MIN_WAIT_SHARE * wall_s:
        awaited_text = f", mostly {awaited}" if awaited else ""
        waits.append(f"{seconds_text(waited_s)} for a CPU{awaited_text}")
    wait_text = ""
    if job is not None and waits:
        bound_text = " at least" if _seen_share(line) < MIN_RECORDED_SHARE else ""
        wait_text = f"{bound_text} {' and '.join(waits)}"
    if used_s <= MAX_SINGLE_TASK_CPUS * wall_s:
        cpus_name = f" on {cpu_list(job['cpus'])}" if job is not None else ""
        wait_text = f" and waited{wait_text}" if wait_text else ""
        return f"{text}: it ran {seconds_text(used_s)}{cpus_name}{wait_text}."
    wait_text = f"; its tasks waited{wait_text}" if wait_text else ""
    busy = line.get("busy")
    alone_text = ""
    if busy is not None and busy["cpus"] >= 3 and busy["one_s"] >= MIN_SINGLE_CPU_SHARE * wall_s:
        alone_text = f" For {busy['one_s']:.1f} s, only one CPU was busy."
    busy_cpus = f"kept {used_s / wall_s:.1f} of {len(line['cpus'])} CPUs busy"
    return f"{text} and {busy_cpus}{wait_text}.{alone_text}"


def command_lines(session: Session, line: Line) -> list[str]:
    """Returns lines about the command's times, CPUs and waits, and about other tasks. Unknown items
    are left out. `line`: the summary of a measurement around a command."""
    run, job, other_tasks, machine = line["run"], line["job"], line.get("others"), line["machine"]
    argv = session.command_run.argv
    user, system = (f"{run[key]:.3f} s" for key in ("user_s", "sys_s"))
    slack_s = run["slack_s"]
    measured = "the measuring window is not known"
    if slack_s is not None:
        measured = f"measured for {slack_s:.3f} s longer"
    work = [f"IPC {machine['ipc']['mean']:.2f}"] if machine["ipc"] is not None else []
    if (kernel := machine["kernel_cycles"] or machine["system"]) is not None:
        work.append(f"{percent(kernel['mean'])} % in the kernel")
    both_share = mean_both_share(line)
    if both_share is not None and both_share >= MIN_WAIT_SHARE:
        work.append(f"both threads of a core {whole_percent(both_share)}")
    waits = ""
    if job is not None:
        quota_s, waited_s = _quota_and_cpu_wait_s(job)
        shown_quota_s = quota_s if quota_s >= MIN_STATE_S else None
        times = {"its CPU quota": shown_quota_s, "a CPU": waited_s, "the disk": job["disk_s"]}
        known_times = (f"{seconds_text(s)} for {use}" for use, s in times.items() if s is not None)
        waits = " and ".join(known_times)
        if (longest_s := job.get("longest_wait_s") or 0.0) >= MIN_STATE_S:
            longest_text = f"for a CPU (once {seconds_text(longest_s)} or longer)"
            waits = waits.replace("for a CPU", longest_text, 1)
        for word in ("stopped", "slept"):
            if (seconds := job.get(f"{word}_s") or 0.0) >= MIN_STATE_S:
                waits += f"{', ' if waits else ''}{word} {seconds_text(seconds)}"
        bound_text = "at least " if _seen_share(line) < MIN_RECORDED_SHARE else ""
        waits = f"{bound_text}{waits}, all tasks together" if waits else ""
    run_text = ""
    if other_tasks is not None:
        # Task records can miss short-lived processes.
        run_text = f"at least {other_tasks['cpus']:.1f} CPUs on average"
        if (top := other_tasks["most"]) is not None:
            name = f"{safe_text(top['comm'], MAX_NAME_LENGTH)}[{top['pid']}]"
            run_text += f"; most: {name}, {top['ran_s']:.1f} s on {cpu_list(top['cpus'])}"
    texts = {
        "command": safe_text(shlex.join(argv), MAX_COMMAND_LENGTH) if len(argv) > 1 else "",
        f"exit status {run['status']}": f"user {user}   system {system}   {measured}",
        "CPUs busy": _busy_text(line.get("busy")), "clock": _clock_line(session, line),
        "work": ", ".join(work), "used": ", ".join(_resource_lines(line)), "waits": waits,
        "others": run_text, "energy": _energy_line(line),
    }  # fmt: skip
    lines = [f"{name:<{LABEL_CHARACTERS}}{part}" if len(name) < LABEL_CHARACTERS
             else f"{name}   {part}" for name, part in texts.items() if part]  # fmt: skip
    if run["missed"]:
        lines.append(f"CPUs {ranges(run['missed'])} were off or unreadable at its start or end")
    return lines


def _busy_text(busy: Line | None) -> str:
    if busy is None:
        return ""
    task_name = f" ({safe_text(str(busy['alone']), MAX_NAME_LENGTH)})" if busy["alone"] else ""
    n = busy["cpus"] - 1
    spans = (
        (f"all {busy['cpus']} for", "all_s", ""),
        ("only 1 for", "one_s", task_name),
        (f"2 to {n} for" if n > 2 else "2 for", "between_s", ""),
        ("none for", "none_s", ""),
    )
    least_s = MIN_WAIT_SHARE * sum(busy[key] for _, key, _ in spans)
    return ", ".join(
        f"{name} {busy[key]:.1f} s{task}" for name, key, task in spans if busy[key] > least_s
    )


def _clock_line(session: Session, line: Line) -> str:
    measure = line["machine"]["busy_hz"]
    if measure is None:
        return ""
    ceilings = session.run_interval().ceiling_hz[session.selected_cores()]
    ceilings = ceilings[np.isfinite(ceilings)]
    limit = f" of {clock_ghz(float(ceilings.mean()))}" if len(ceilings) else ""
    below_share = line["totals"].get("below_ceiling") or 0.0
    if below_share < MIN_WAIT_SHARE:
        return f"{clock_ghz(measure['mean'])}{limit} GHz"
    kinds = [kind for kind in KINDS if kind == "throttle" or KINDS[kind].depth == "hz"]
    causes = [cause["cause"] for cause in line.get("causes", ()) if cause["kind"] in kinds]
    reason = f" ({cause_of(causes[0]).name})" if causes else ""
    clock = f"{clock_ghz(measure['mean'])}{limit} GHz"
    return f"{clock}, below its ceiling {whole_percent(below_share)} of the time{reason}"


def _resource_lines(line: Line) -> list[str]:
    """Returns lines about the command's resources. Cycles and instructions are the machine's."""
    run, totals, parts = line["run"], line["totals"], []
    if {"instructions", "cycles"} <= totals.keys():
        instructions, cycles = _si_text(totals["instructions"]), _si_text(totals["cycles"])
        parts.append(f"{instructions} instructions in {cycles} cycles on all CPUs")
    if (switches := run["switches"]) is not None:
        parts.append("1 switch" if switches == 1 else f"{_si_text(switches)} switches")
    if run["page_faults"] is not None:
        disk = f" ({run['disk_faults']} from disk)" if run["disk_faults"] else ""
        parts.append(f"{_si_text(run['page_faults'])} page faults{disk}")
    if run["peak_bytes"] is not None:
        parts.append(f"{run['peak_bytes'] / 1e6:.1f} MB in its largest process")
    return parts


def _si_text(value: float) -> str:
    power, prefix = scale(value)
    return f"{value / 10**power:.3g} {prefix}" if prefix else f"{value:.0f}"


def _energy_line(line: Line) -> str:
    energy_j, elapsed_s = line["energy_j"], line["elapsed_s"]
    own_s, dram_j = line.get("own_cpu_s"), line.get("energy_dram_j")
    if energy_j is None:
        return ""
    parts = []
    if elapsed_s:
        amount = f"{energy_j / 1e3:.2f} kJ" if energy_j >= 1e3 else f"{energy_j:.1f} J"
        dram = f" (memory {dram_j / elapsed_s:.1f} W)" if dram_j is not None else ""
        parts.append(f"{amount}, {energy_j / elapsed_s:.1f} W{dram}")
        if own_s is not None:
            parts.append(f"own cost {100 * own_s / elapsed_s:.1f} % of one CPU")
    return "   ".join(parts)


# --- The summary of a measurement


def measured_line(session: Session, measurement: Measurement, tally: EpisodeTally) -> Line:
    """Returns the summary of a measurement."""
    line = summary_line(session, tally.counts_by_cause)
    own_s = measurement.own_cpu_s(session.probe_cpu_s())
    return line if isnan(own_s) else line | {"own_cpu_s": json_number(own_s)}


def receipt(session: Session, measurement: Measurement, tally: EpisodeTally) -> list[str]:
    """Returns the summary of a command, in a session that continues after its end. `tally`: the
    episodes that have ended."""
    if not session.frames:
        return []
    for episode in session.running:
        tally.add(episode, session.now_ns)
    # For a kind with several episodes, `ending_lines` prints the worst one.
    sole_episodes = [episode_line(session, episode) for episode in tally.sole_episodes()]
    ending = ending_lines(session, tally, measured_line(session, measurement, tally))
    return [*sole_episodes, *ending, "", *heading(session, DOCTOR_REASONS)]
