"""The report of `perftop why` as text (an answer in one sentence and a table) and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, nan

from perftop.base.text import (
    MISSING,
    Line,
    count_noun,
    json_number,
    long_duration,
    percent,
    printable,
    short_duration,
    short_percent,
    terminal_text,
    time_of_day,
    two_decimals,
    whole_percent,
    wrap_text,
)
from perftop.draw.columns import Run
from perftop.model.confidence import COUNTED_QUANTITIES
from perftop.model.control_groups import is_group, is_pid
from perftop.model.kinds import KINDS, STEAL_CAUSE
from perftop.output.report import MAX_CAUSES, MIN_SHARE, Finding, Report
from perftop.output.sentences import MAX_SENTENCE, MAX_SHORT_CPUS, short_cpus_text
from perftop.output.why_report import MIN_ALWAYS_SHARE, unmeasured_losses
from perftop.session.losses import CauseKey

WIDTH = 78
"""Width in columns: 80 without the margin of the screen."""
INDENT = 10
"""Width in columns of the marker and the number before the text."""
LABEL_WIDTH, TRY_WIDTH = 11, 10
"""Width in columns of labels such as `not seen`, and of the labels of a cause, such as `try:`."""
MIN_WANTED_SHARE = 0.75
"""Minimum share of the elapsed time that a job must have run or waited for its losses to be given
as shares of its time. With less, it also slept, and the answer says how long it wanted a CPU."""
MIN_READY_SHARE = 0.5
"""Minimum share of the readings that found a thread ready although it did not run, for the answer
to say so."""
MIN_DISK_SHARE = 0.5
"""Minimum share of its time that a job must have waited for the disk, or have been blocked in the
kernel, for the answer to say so."""
SHORT_TASKS = "Tasks that live for less than 0.1 s can be missed."
MAX_EVIDENCE_LINES = 3
MAX_UNMEASURED_LOSSES = 4


# --- the answer in one sentence


def answer(report: Report) -> str:
    """Returns a sentence that says what slows the job or the machine down: the most detailed
    wording that fits on one line."""
    wordings = _Answer(report).wordings()
    return next((text for text in wordings if len(text) <= MAX_SENTENCE), wordings[-1])


class _Answer:
    """The wordings of the answer. A method for each situation returns them, most detailed first."""

    def __init__(self, report: Report) -> None:
        self.session = session = report.session
        self.report = report
        self.machine = "this VM" if session.hello.virtualisation is not None else "this machine"
        self.name = report.job or self.machine
        self.subject = self.name
        """The subject at the start of a sentence. The name of a program is not capitalised."""
        if self.name.startswith(("this ", "process ")):
            self.subject = self.name[0].upper() + self.name[1:]
        has_clock = bool(session.evaluator.variants["busy_hz"])
        self.no_clock = "" if has_clock else " Clocks cannot be read here."

    def verb(self, present: str, past: str) -> str:
        return past if self.report.past_tense else present

    def wordings(self) -> list[str]:
        report = self.report
        if report.job and not report.totals.times.threads:
            return self.unseen_job_answer()
        if report.blocked_share >= MIN_DISK_SHARE and not report.named_findings:
            return [f"{self.disk_wait()}."]
        if not isfinite(report.sums.lost_ratio):
            return self.no_work_answer()
        if report.is_too_short:
            length = short_duration(report.sums.whole_s)
            bound, reason = "only", "too short a time to give shares of it"
            if report.has_missed_tasks:
                bound, reason = "at least", "too little of which was seen to give shares of it"
            return [f"{self.subject} wanted a CPU for {bound} {length}, {reason}."]
        if not report.named_findings:
            return self.no_cause_answer()
        first = report.named_findings[0]
        if report.job is None and (first.cause == STEAL_CAUSE or first.headline):
            return self.victim_loss_answer()
        if report.has_missed_tasks:
            return self.observed_loss_answer()
        if report.job and report.sums.whole_s < MIN_WANTED_SHARE * report.totals.elapsed_s:
            return self.sleeper_loss_answer()
        return self.loss()

    def unseen_job_answer(self) -> list[str]:
        watched = self.session.neighbours.watched_job.name or ""
        if not is_pid(watched):
            text = f"No process {'in' if is_group(watched) else 'named'} {self.name} was found"
            text += "" if self.report.is_whole_run else " in this time"
        elif self.report.is_whole_run:
            text = f"{self.subject} ended before a sample"
        else:
            text = f"{self.subject} {self.verb('is', 'was')} not running"
        return [f"{text}, so nothing is known about it."]

    def disk_wait(self) -> str:
        if (share := self.report.job_time_share("disk_s")) >= MIN_DISK_SHARE:
            waits = self.verb("waits", "waited")
            return f"{self.subject} {waits} for the disk {_share_text(share)} of its time"
        start = f"{self.subject} {self.verb('is', 'was')} blocked in the kernel (cause unknown)"
        return f"{start} {_share_text(self.report.blocked_share)} of its time"

    def no_work_answer(self) -> list[str]:
        """Returns the answer if no CPU time was used, or if it is unknown whether any was."""
        report = self.report
        if not isfinite(report.interval.values.mean("util", self.session.selected)):
            is_sampled = report.totals.span.sample_count > report.totals.span.suspect_count
            reason = "CPU utilisation cannot be read" if is_sampled else "there is no good sample"
            return [f"Whether {self.name} had work is not known: {reason}."]
        threads = report.totals.times.threads.values()
        if any(t.by_state.get("R", 0.0) > MIN_READY_SHARE * t.elapsed_s > t.run_s for t in threads):
            text = f"{self.subject} {self.verb('is', 'was')} ready to run, but did not run"
            unknown = self.verb("not known yet", "unknown")
            return [f"{text}. How long it waited is {unknown}.", f"{text}."]
        idle = "used no CPU time" if report.job else "was idle"
        return [f"{self.subject} {idle}, so nothing could be lost.{self.no_clock}"]

    def no_cause_answer(self) -> list[str]:
        """Returns the answer if no cause costs enough to be named. There may be a clue."""
        report, slowing_text = self.report, self.verb("is slowing", "slowed")
        lost_percent = percent(report.sums.lost_ratio)
        text = f"Nothing {slowing_text} {self.name} down ({lost_percent} % lost in total)."
        if not report.totals.times.has_waits:
            text = f"No slowdown of {self.name} was found; how long tasks waited is not known."
            share = report.interval.machine.get("pressure_cpu", nan)
            if report.job is None and share >= MIN_SHARE:
                waited = (
                    f"{self.verb('waits', 'waited')} for a CPU {_share_text(share)} of the time"
                )
                text = f"Some task {waited}; which one is {self.verb('not known yet', 'unknown')}."
        elif report.has_missed_tasks:
            text = f"Nothing was seen to slow {self.name} down, but {self.observed_share_text()}."
        bounds = [clue.highest_share for clue in report.clues if isfinite(clue.highest_share)]
        sampled = [clue for clue in report.clues if isfinite(clue.lost_share)]
        if sampled:
            worst_clue = max(sampled, key=lambda clue: clue.lost_share)
            lost_percent = f"{self.verb('spends', 'spent')} {_share_text(worst_clue.lost_share)}"
            text = f"{self.subject} {lost_percent} of its time {worst_clue.activity}."
        elif report.clues:
            clue = "there is a clue below"
            if bounds:
                clue = f"the clue below may cost up to {whole_percent(max(bounds))}"
            text = f"Nothing measured {slowing_text} {self.name} down, but {clue}."
        return [text + self.no_clock, text]

    def victim_loss_answer(self) -> list[str]:
        """Returns the answer if the victims are some tasks, or the guest of a hypervisor."""
        report, first = self.report, self.report.named_findings[0]
        start = f"{self.verb('takes', 'took')} {_share_text(self.culprit_share())}"
        text = f"The hypervisor {start} of {self.machine}'s time"
        texts = [first.headline] if first.headline else [text + place for place in self.places()]
        rest_share = sum(f.share for f in report.named_findings if f.culprit != first.culprit)
        rest_text = ""
        if rest_share >= MIN_SHARE:
            rest_text = f"; other causes {self.verb('take', 'took')} {_share_text(rest_share)}"
        ends = f"{rest_text}.{self.no_clock}", f"{rest_text}.", "."
        return [text + end for end in ends for text in texts]

    def observed_share_text(self) -> str:
        return f"only {whole_percent(self.report.seen_share)} of its CPU time was seen"

    def observed_loss_answer(self) -> list[str]:
        """Returns the answer if most tasks were missed: the lost time is a lower bound, and its
        share of the wanted time is unknown."""
        culprit, ratio = self.report.named_findings[0].culprit, self.culprit_share()
        lost_text = short_duration(ratio * self.report.sums.whole_s)
        text = f"{self.subject} lost at least {lost_text} to {culprit}"
        return [f"{text}; {self.observed_share_text()}.", f"{text}."]

    def sleeper_loss_answer(self) -> list[str]:
        """Returns the answer if the job also slept."""
        report, culprit = self.report, self.report.named_findings[0].culprit
        wanted_text, elapsed = (
            long_duration(round(round(seconds, 1) * 1e9))
            if seconds >= 1
            else short_duration(seconds)
            for seconds in (report.sums.whole_s, report.totals.elapsed_s)
        )
        start = f"{self.verb('loses', 'lost')} {_share_text(self.culprit_share())}"
        if report.blocked_share >= MIN_DISK_SHARE:
            return [
                f"{self.disk_wait()}; it {start} of {wanted_text} to {culprit}.",
                f"{self.disk_wait()}.",
            ]
        wants = f"{self.subject} {self.verb('wants', 'wanted')}"
        text = f"{wants} a CPU for {wanted_text} of {elapsed}"
        start = f"and {start} of that"
        return [
            f"{text} {start} to {culprit}.{self.no_clock}",
            *(f"{text} {start} to {culprit}{place}." for place in (*self.places(), "")),
            f"{wants} {wanted_text} {start} to {culprit}.",
            f"{text}.",
        ]

    def loss(self) -> list[str]:
        """Returns the answer that names the costliest cause, and the second one if it fits."""
        first, places = self.report.named_findings[0], self.places()
        start = f"{self.verb('loses', 'lost')} {_share_text(self.culprit_share())}"
        text = f"{self.subject} {start} of its {first.unit} to {first.culprit}"
        wordings = [text + place + end for end in (f".{self.no_clock}", ".") for place in places]
        wordings.append(f"{text}.")
        other_findings = (f for f in self.report.named_findings if f.culprit != first.culprit)
        if (second := next(other_findings, None)) is not None:
            of_unit = "" if second.unit == first.unit else f" of its {second.unit}"
            second_text = f"and {_share_text(second.share)}{of_unit} to {second.culprit}."
            wordings = [f"{text}{place} {second_text}" for place in (*places, "")] + wordings
        return wordings

    def culprit_share(self) -> float:
        """Returns the share of all causes that have the costliest cause's culprit."""
        findings = self.report.named_findings
        return sum(f.share for f in findings if f.culprit == findings[0].culprit)

    def places(self) -> list[str]:
        """Returns the CPUs on which the costliest cause acts, all and shortened; '' for all CPUs of
        the machine."""
        cpus, topology = self.report.named_findings[0].cpus, self.session.topology
        if not cpus or len(cpus) == len(self.session.selected):
            return [""]
        lengths = MAX_SENTENCE, MAX_SHORT_CPUS
        return [f" on {short_cpus_text(topology, cpus, length)}" for length in lengths]


def _share_text(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0195 else f"{percent(share)} %"


# --- the table of causes

_ANSI = {"answer": "1", "lost": "31", "dim": "2", "try": "34"}
"""SGR codes by style; the style `text` has none."""


def lines(report: Report, *, colour: bool, unicode: bool) -> list[str]:
    """Returns the lines of the report."""
    return texts(rows(report), colour=colour, unicode=unicode)


def texts(rows: Sequence[Sequence[Run]], *, colour: bool, unicode: bool) -> list[str]:
    """Returns rows as lines. `colour`: add escape sequences for colours. `unicode`: allow
    characters outside ASCII."""
    lines = []
    for row in rows:
        line = "".join(
            terminal_text(text, _ANSI.get(style, "") if colour else "", unicode=unicode)
            for text, style in row
        )
        lines.append(line if colour else line.rstrip())
    return lines


def rows(report: Report) -> list[list[Run]]:
    """Returns the lines of the report, as runs whose styles are `text` or keys of `_ANSI`."""
    rows: list[list[Run]] = [[(answer(report), "answer")], []]
    if report.named_findings:
        rows += cause_rows(report)
    elif report.is_too_short:
        rows += [[(f"{SHORT_TASKS} Measure a longer run.", "text")], []]
    elif report.job and not report.totals.times.threads:
        name = report.session.neighbours.watched_job.name or ""
        if name and not is_pid(name) and not is_group(name):
            rows += [
                *_try_lines("--watch PID, or the name that ps -o comm shows", 0),
                [],
            ]
    else:
        if report.checks:
            rows.append([(f"{'lost':>7}  {'looked for':<28}found", "dim")])
        for check in report.checks:
            if check.loss_name:
                share = f"{percent(check.share)} %" if isfinite(check.share) else MISSING
                rows.append([(f"{share:>7}  {check.loss_name:<28}{check.result}", "text")])
        if works := _working_sentence(report):
            rows += [[], [(works, "text")]]
        is_own = report.totals.times.has_waits and report.blocked_share < MIN_DISK_SHARE
        if isfinite(report.sums.lost_ratio) and is_own:
            rows.append([("If a program is still slow, the cause is in its own code: ", "text"),
                         ("perf record -g", "try"), (".", "text")])  # fmt: skip
        rows.append([])
    remedies = {finding.hint for finding in report.named_findings[:MAX_CAUSES]}
    for clue in report.clues:
        rows += _labelled_lines("clue", clue.text)
        hint = "" if clue.hint in remedies else clue.hint
        rows += _try_lines(hint, LABEL_WIDTH)
    if report.job_time is not None:
        from perftop.output.run_summary import time_use_text  # 0.2 MB, which a screen rarely needs

        rows += _labelled_lines("spent", time_use_text(report.job_time), "dim")
    for i, (name, reason, fix) in enumerate(unmeasured_losses(report)[:MAX_UNMEASURED_LOSSES]):
        text = f"{name}: {reason}" + (f" ({fix})" if fix else "")
        rows += _labelled_lines("not seen" if i == 0 else "", text)
    if not report.session.evaluator.variants["busy_hz"]:
        is_vm = report.session.hello.virtualisation is not None
        sibling_text = " or a busy sibling outside" if is_vm else ""
        rows += _labelled_lines("", f"A low clock{sibling_text} would look like slow code here.")
    elif not report.session.reader.turbo.cpus.any():
        text = "No turbo table is known: clocks are compared with the base clock."
        rows += _labelled_lines("", text)
    return rows + _labelled_lines("seen", _basis_sentence(report), "dim")


def cause_rows(report: Report, notes: Mapping[CauseKey, str] | None = None) -> list[list[Run]]:
    """Returns the costliest causes with their evidence and remedies, how long the job would take at
    least without the first of them, and the losses that are ruled out. `notes`: further words on
    causes, all of which are named."""
    notes = notes or {}
    heading = f"{'lost':>7}   {'what held it back':<{WIDTH - INDENT}}"
    rows: list[list[Run]] = [[(f"{heading[:-3]}for", "dim")]]
    named = [f for f in report.findings if f.cause in notes or f in report.named_findings]
    for finding in named[:MAX_CAUSES]:
        rows += _finding_lines(finding, report.totals.elapsed_s, notes.get(finding.cause, ""))
    if hidden_findings := named[MAX_CAUSES:]:
        rows.append([(f"{'':{INDENT}}+ {len(hidden_findings)} more", "dim")])
    rows.append([])
    elapsed_s, lost_s = report.totals.elapsed_s, named[0].lost_s
    is_whole_job = report.job is not None and report.is_whole_run and not report.has_missed_tasks
    if is_whole_job and report.past_tense and isfinite(report.lost_ratio):
        # The work's CPU seconds, without all losses, shared evenly by all CPUs.
        least_s = report.sums.whole_s * (1 - report.lost_ratio) / len(report.session.selected)
        least_s = min(elapsed_s, max(elapsed_s - lost_s, least_s))
        text = f"without the first cause, the same work takes at least {least_s:.1f} s"
        rows += _labelled_lines("then", f"{text} of {elapsed_s:.1f} s (inferred)")
    if report.has_missed_tasks:
        text = f"{whole_percent(report.seen_share)} of its CPU time; the shares are of this part"
        rows += _labelled_lines("seen only", text)
    ruled_out = ", ".join(report.ruled_out_losses) or "nothing"
    return rows + _labelled_lines("ruled out", ruled_out, "dim")


def _finding_lines(finding: Finding, elapsed_s: float, note: str) -> list[list[Run]]:
    style = "lost" if finding.is_running else "text"
    end = ""
    if finding.active_s is not None:
        is_always = finding.active_s >= MIN_ALWAYS_SHARE * elapsed_s
        end = long_duration(round((elapsed_s if is_always else finding.active_s) * 1e9))
        end = f"all {end}" if is_always else end
    room = WIDTH - INDENT - len(end) - (3 if end else 0)
    first, *extra_lines = wrap_text(finding.text, room) or [""]
    sign = KINDS[finding.cause[0]].marker if finding.cause[0] in KINDS else " "
    head = [(f"{sign} {percent(finding.share):>4} %", style), ("  " + first, "text")]
    head.append((end.rjust(WIDTH - INDENT - len(first)) if end else "", "dim"))
    label = f"{'':{INDENT}}{finding.confidence + ':':<{TRY_WIDTH}}"
    counted = COUNTED_QUANTITIES.get(finding.cause)
    basis = "no counter names a limit" if counted is None else counted.quantity
    evidence = wrap_text(
        ", ".join(finding.evidence) or basis, WIDTH, initial_indent=label,
        subsequent_indent=" " * len(label), max_lines=MAX_EVIDENCE_LINES, placeholder=" …",
    )  # fmt: skip
    rows = [head, *([(" " * INDENT + line, "text")] for line in extra_lines)]
    rows += [[(line, "dim")] for line in evidence]
    for i, line in enumerate(wrap_text(note, WIDTH - len(label)) if note else ()):
        rows.append([(f"{'':{INDENT}}{'' if i else 'lost:':<{TRY_WIDTH}}{line}", "dim")])
    return rows + _try_lines(finding.hint, INDENT)


def _try_lines(hint: str, indent: int) -> list[list[Run]]:
    """Returns the lines of a remedy after the label `try:`; [] if there is no remedy."""
    return [
        [(f"{'':{indent}}{'' if i else 'try:':<{TRY_WIDTH}}", "dim"), (line, "try")]
        for i, line in enumerate(wrap_text(hint, WIDTH - indent - TRY_WIDTH))
    ]


def _working_sentence(report: Report) -> str:
    """Returns a sentence about how busy the machine was; '' if unknown."""
    session, interval = report.session, report.interval
    keys = "util", "ipc", "kernel_cycles"
    util, ipc, kernel = (interval.values.mean(key, session.selected) for key in keys)
    both_share = interval.split.mean("both")
    if not isfinite(util):
        return ""

    parts = [f"{short_percent(util)} busy"]
    parts += [f"IPC {two_decimals(ipc)}"] if isfinite(ipc) else []
    parts += [f"{short_percent(kernel)} in the kernel"] if isfinite(kernel) else []
    if isfinite(both_share) and session.has_smt:
        parts.append(f"both threads of a core {whole_percent(both_share)}")
    state = "Working" if isfinite(report.sums.lost_ratio) else "Idle"
    if report.job is not None:
        state = "The machine"  # CPUs may also be busy with tasks outside the job
    text = f"{state}: {', '.join(parts)}."
    return text if len(text) <= WIDTH else text.replace(" of a core", "")


def _basis_sentence(report: Report) -> str:
    session = report.session
    virtualisation = session.hello.virtualisation
    parts = [printable(session.hello.host) or "this machine"]
    if virtualisation:
        parts.append("VM" if virtualisation == "hypervisor" else f"VM ({virtualisation})")
    cores = len(session.selected_cores())
    names_cpus = cores < len(session.selected) or not virtualisation
    parts.append(
        count_noun(cores, "core") if names_cpus else count_noun(len(session.selected), "CPU")
    )
    util = report.interval.values.mean("util", session.selected)
    parts += [f"{whole_percent(util)} busy"] if isfinite(util) and not names_cpus else []
    end = time_of_day(session.unix_s(report.totals.end_ns))
    totals = report.totals
    parts.append(f"{long_duration(report.span_ns)} until {end}")
    samples, suspects = totals.span.sample_count, totals.span.suspect_count
    text = f"{count_noun(samples, 'sample')}, {suspects} suspect"
    parts.append(text if suspects else count_noun(samples, "good sample"))
    return ", ".join(parts)


def _labelled_lines(label: str, text: str, style: str = "text") -> list[list[Run]]:
    return [
        [(f"{label if i == 0 else '':<{LABEL_WIDTH}}", "dim"), (line, style)]
        for i, line in enumerate(wrap_text(text, WIDTH - LABEL_WIDTH) or [""])
    ]


# --- the report as JSON


def why_json(report: Report, run: Line | None) -> Line:
    """Returns the object that `perftop help json` explains. Later versions may add keys."""
    session, totals = report.session, report.totals
    hello, end = session.hello, session.unix_s(report.totals.end_ns)
    causes = [
        {
            "kind": f.cause[0], "cause": f.cause[1], "lost_ratio": json_number(f.share),
            "lost_s": json_number(f.lost_s), "for_s": json_number(f.active_s),
            "running": f.is_running, "cpus": f.cpus, "text": f.text,
            "confidence": f.confidence, "evidence": f.evidence,
            "details": f.details, "try": f.hint or None,
        }
        for f in report.findings
    ]  # fmt: skip
    clues = [
        {"key": clue.key, "text": clue.text, "try": clue.hint,
         "highest_ratio": json_number(clue.highest_share),
         "lost_ratio": json_number(clue.lost_share)}
        for clue in report.clues
    ]  # fmt: skip
    looked_for = [
        {"key": check.key, "lost_ratio": json_number(check.share), "text": check.loss_name,
         "found": check.result}
        for check in report.checks
    ]  # fmt: skip
    basis = {
        "host": hello.host, "source": hello.source, "virtualisation": hello.virtualisation,
        "cpus": [session.topology[row].cpu for row in session.selected],
        "start": end - totals.elapsed_s, "end": end, "elapsed_s": json_number(totals.elapsed_s),
        "samples": totals.span.sample_count, "suspect": totals.span.suspect_count,
        "lost": session.dropped_frames,
        "run_ratio": json_number(report.seen_share),
    }  # fmt: skip
    return {
        "type": "why", "answer": answer(report), "job": report.job,
        "lost_ratio": json_number(report.sums.lost_ratio),
        "wanted_s": json_number(report.sums.whole_s), "causes": causes, "clues": clues,
        "looked_for": looked_for,
        "not_seen": [{"what": name, "why": reason, "fix": fix}
                     for name, reason, fix in unmeasured_losses(report)],
        "spent": None if report.job_time is None
        else {key: json_number(s) for key, s in report.job_time._asdict().items()},
        "seen": basis, "run": run,
    }  # fmt: skip
