"""Text about episodes: their names, counts and explanations. The alert line, the lists of episodes,
`why`, `stat`, `summary`, `diff` and the exporter use it.

A sentence names the victim, the size of the loss and the cause. Its phrases are declared with the
kinds of episodes in `model/kinds.py`; this module fills in their fields. It uses the first phrase
that fits the length and whose fields are all known; if there is none, a few words replace the
sentence."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

from perftop.base.text import (
    ELLIPSIS,
    cut,
    long_duration,
    percent,
    ranges,
    safe_text,
    short_duration,
    time_of_day,
)
from perftop.model.confidence import OUTSIDE_CPU, ClockCap, Hypervisor, SimdLevel, TaskOnCpu
from perftop.model.control_groups import is_group, is_pid, short_owner
from perftop.model.kinds import CLOCK_CAPS, KINDS, STEAL_CAUSE, Episode, cause_of, group_of, kind_of
from perftop.model.tasks import parse_task

if TYPE_CHECKING:
    from perfprobe.wire import Cpu
    from perftop.session.interval import Tasks
    from perftop.session.session import Session

MAX_SENTENCE = 76
"""Maximum characters of a sentence. With the four characters before it, it fills 80 columns."""
MAX_OWNER_LENGTH = 30
"""Maximum characters of the name of a control group's owner in a sentence."""
MAX_COMM_LENGTH = 15
"""Maximum characters of a thread's name: the kernel truncates the name of its program to these."""

# --- names of commands and of CPUs

_WRAPPERS = {"chrt", "doas", "env", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf",
             "sudo", "taskset", "time", "timeout"}  # fmt: skip
"""Programs that run another program, whose name is among their arguments."""
_WRAPPER_ARGUMENT = re.compile(r"-.*|[0-9][0-9.,:-]*[a-z]?|0x[0-9a-f]+|\w+=.*")
"""An option of a wrapper, or its value: a number, a time, a list of CPUs, or a variable."""


def command_name(argv: Sequence[str], busiest: str = "") -> str:
    """Returns the name of the program that a command runs, which for wrappers such as `nice` is
    among the arguments. `busiest`: the name of the busiest thread, used if it is an argument."""
    names = [PurePath(word).name or word for word in argv]
    if busiest and (matches := [name for name in names if name[:MAX_COMM_LENGTH] == busiest]):
        return matches[0]
    programs = names if names[0] in _WRAPPERS else names[:1]
    programs = [n for n in programs if n not in _WRAPPERS and not _WRAPPER_ARGUMENT.fullmatch(n)]
    return next(iter(programs), names[0])


def job_name(session: Session) -> str | None:
    """Returns the name of the watched job: of its command, of its group, of the process's first
    thread or, if that is unknown, of most threads. None without a job."""
    watched_job, threads = session.neighbours.watched_job, session.run.times.threads.values()
    if session.watches_command and (command := session.command_run.argv):
        busiest = max(threads, key=lambda thread: thread.run_s, default=None)
        return command_name(command, "" if busiest is None else busiest.comm)
    name = watched_job.name
    if name is None or not is_pid(name):
        return short_owner(name) if name is not None and is_group(name) else name
    comms = {tid: thread.comm for (_, tid), thread in session.run.times.threads.items()}
    comms = comms or {tid: thread.comm for tid, thread in watched_job.threads.items()}
    if not comms:
        return f"process {name}"
    return comms.get(int(name)) or Counter(comms.values()).most_common(1)[0][0]


def cpus_text(topology: Sequence[Cpu], cpus: Iterable[int], max_length: int = 24) -> str:
    """Returns the names of packages or cores if the CPUs are all their online CPUs, else CPU
    numbers. A list of more than `max_length` characters is truncated."""
    chosen_cpus = set(cpus)
    if len(chosen_cpus) == 1:
        return f"CPU {min(chosen_cpus)}"
    online = [row for row in topology if row.online]
    chosen_rows = [row for row in online if row.cpu in chosen_cpus]
    units = _whole_units(online, chosen_rows, len(chosen_cpus))
    noun, names = units or ("CPU", ranges(chosen_cpus))
    if not set(",-").intersection(names):
        return f"{noun} {names}"
    if len(names) <= max_length:
        return f"{noun}s {names}"
    names = ranges(chosen_cpus)[:max_length].rpartition(",")[0]
    return f"{len(chosen_cpus)} CPUs {names},{ELLIPSIS}"


MAX_SHORT_CPUS = 9
"""Maximum characters of a list of CPUs in a sentence that would be too long with all of it."""


def short_cpus_text(
    topology: Sequence[Cpu], cpus: Iterable[int], max_length: int = MAX_SHORT_CPUS
) -> str:
    """Returns the name of the CPUs for a sentence. A list of more than `max_length` characters
    becomes the first CPU and the number of the others."""
    chosen_cpus = set(cpus)
    name = cpus_text(topology, chosen_cpus, max_length)
    if name.startswith("packages ") and len(chosen_cpus) == sum(row.online for row in topology):
        return "both packages" if len({row.package for row in topology}) == 2 else "all packages"
    if not name.endswith(ELLIPSIS):
        return name
    return f"CPU {min(chosen_cpus)} (+{len(chosen_cpus) - 1})"


def _whole_units(
    online: Sequence[Cpu], chosen_cpus: Sequence[Cpu], count: int
) -> tuple[str, str] | None:
    """Returns the kind and the numbers of the packages or cores that consist of exactly these CPUs;
    None if there are none. `chosen_cpus`: the online ones of the `count` CPUs."""
    cores = {(row.package, row.core) for row in chosen_cpus}
    packages = {row.package for row in chosen_cpus}
    numbers = [package for package in packages if package is not None]
    if len(numbers) < len(packages) or len(chosen_cpus) != count:
        return None
    are_cores = sum((row.package, row.core) in cores for row in online) == count > len(cores)
    are_packages = sum(row.package in packages for row in online) == count > len(packages)
    if len(cores) > 1 and are_packages:
        return "package", ranges(numbers)
    if are_cores and len(numbers) == 1 and (numbers[0], None) not in cores:
        has_packages = any(row.package != numbers[0] for row in online)
        names = ranges(core for _, core in cores if core is not None)
        return "core", f"{numbers[0]}:{names}" if has_packages else names
    return None


# --- amounts and causes of losses

MIN_LOSS_HZ = 5e6
"""Minimum drop of the clock in Hz that is reported. A smaller one counts as zero."""
MIN_LOSS_SHARE = 0.0005
"""Minimum lost share that is reported. A smaller one would be shown as 0.0 %."""


def depth_text(kind: str, value: float | None) -> str:
    """Returns the depth of an episode of this kind with sign and unit; '' if not measured."""
    unit = KINDS[kind].depth if kind in KINDS else "share"
    if value is None or not math.isfinite(value) or (unit == "hz" and value < MIN_LOSS_HZ):
        return ""
    ghz = f"{value / 1e9:.2f} GHz"
    texts = {"hz": f"−{ghz}", "gain": f"+{ghz}", "count": f"{value:.0f}×"}
    return texts.get(unit) or f"{percent(value)} %"


def loss_text(episode: Episode) -> str:
    """Returns the loss in the episode with its unit; '' if it is zero or unknown."""
    value, unit = episode.depth, kind_of(episode).depth
    if value is None or not math.isfinite(value):
        return ""
    if unit == "hz":
        return f"{value / 1e9:.2f} GHz" if value >= MIN_LOSS_HZ else ""
    if unit == "count":
        return "once" if value == 1 else f"{value:.0f} times"
    if unit != "share" or value < MIN_LOSS_SHARE:
        return ""
    estimated = episode.kind == "neighbour" and episode.cause != "hypervisor"
    digits = 0 if estimated and value >= 0.1 else 1
    return f"{f'{100 * value:.{digits}f}'.removesuffix('.0')} %"


def clocks_text(episodes: Iterable[Episode]) -> str:
    """Returns the mean clock and ceiling, such as "2.78 of 3.40 GHz", weighted with each episode's
    duration and number of CPUs; '' if they were not measured."""
    weighted = [
        (len(e.cpus) * max(1, (e.end_ns or e.start_ns) - e.start_ns), e.evidence)
        for e in episodes
        if {"busy_hz", "ceiling_hz"} <= e.evidence.keys()
    ]
    if not (total_weight := sum(weight for weight, _ in weighted)):
        return ""
    busy_hz, ceiling_hz = (
        sum(weight * evidence[key] for weight, evidence in weighted) / total_weight
        for key in ("busy_hz", "ceiling_hz")
    )
    return f"{busy_hz / 1e9:.2f} of {ceiling_hz / 1e9:.2f} GHz"


def cause_name(kind: str, name: str) -> str:
    """Returns the name of a cause; '' if the kind implies the cause."""
    unnamed = name == "unknown" and kind in {"ramp", "smi", "online", "offline"}
    return "" if unnamed else cause_of(name).name


def mid_sentence(subject: str) -> str:
    """Returns a subject for the middle of a sentence: with a lower-case first letter, unless it
    begins with an abbreviation."""
    first_word = subject.partition(" ")[0]
    is_abbreviation = len(first_word) > 1 and first_word[:2].isupper()
    return subject if is_abbreviation else subject[0].lower() + subject[1:]


def subject_of(episode: Episode) -> str:
    """Returns the cause as the subject of a sentence, with details from the evidence."""
    cap, simd = episode.evidence.get("cap"), episode.evidence.get("simd")
    if episode.cause == "policy" and isinstance(cap, ClockCap):
        return CLOCK_CAPS[cap.name][0] if cap.name in CLOCK_CAPS else f"The limit {cap.name}"
    if episode.cause == "prochot" and episode.evidence.get("prochot_from") == OUTSIDE_CPU:
        return "A PROCHOT signal from outside"
    if governor := episode.evidence.get("governor"):
        return f"The governor {safe_text(governor, MAX_OWNER_LENGTH)}"
    if stopper := episode.evidence.get("stopped_by"):
        return f"{stopper[0].upper()}{stopper[1:]}"
    name = cause_of(episode.cause).subject or cause_of("unknown").subject
    if episode.cause == "license" and isinstance(simd, SimdLevel):
        return f"{name} (level {simd.number})"
    return name


def culprits(episode: Episode, key: Literal["who", "self", "loser"] = "who") -> list[TaskOnCpu]:
    """Returns the tasks that take resources from others or, with `self`, from their own job;
    with `loser`, those that lose, if the episode names them."""
    tasks = episode.evidence.get(key, ())
    return [] if isinstance(tasks, Hypervisor) else [t for t in tasks if isinstance(t, TaskOnCpu)]


MIN_NAMED_SHARE = 0.02
"""Minimum share of a CPU that a task must use to be named as a victim."""


def victims(session: Session, episodes: Sequence[Episode], tasks: Tasks) -> list[str]:
    """Returns the names of the tasks that lose in these episodes, the largest share of a CPU first:
    the watched job, or the tasks on the episodes' CPUs according to `tasks`."""
    may_hit_job = any(e.kind in {"neighbour", "stopped"} for e in episodes)
    if may_hit_job and (name := job_name(session)) is not None:
        return [name]
    cpus = sorted({cpu for episode in episodes for cpu in episode.cpus})
    running_tasks = [t for cpu in cpus if (t := parse_task(tasks.get(str(cpu)))) is not None]
    running_tasks.sort(key=lambda t: -t.share)
    return [*dict.fromkeys(t.comm for t in running_tasks if t.share >= MIN_NAMED_SHARE)]


# --- sentences about episodes

Role = Literal["text", "lost", "name"]


class SentencePart(NamedTuple):
    """A piece of a sentence. The role `name` is untrusted text, to be sanitised before drawing."""

    text: str
    role: Role = "text"
    """`lost`: the size of the loss; `name`: the name of a task or a mark."""


def text(parts: Sequence[SentencePart]) -> str:
    return "".join(part.text for part in parts)


_FIELD = re.compile(r"(\{\w+\}|[a-z]+\|[a-z]+)")
_NUMBER_FIELDS = frozenset({"{clocks}", "{lost}", "{climb}"})
"""Sentences must contain one of these fields if any of them is known."""
_FALLBACK_PHRASES = (
    "{who} ({short}) takes|took {lost} on {where}", "{who} ({short}) takes|took {lost}",
    "{who} takes|took {lost}", "{kind} ({short}) {lost}, {where}", "{kind} {climb}, {where}",
    "{kind} {lost}, {where}", "{kind} {lost}", "{kind}, {where}", "{kind}",
)  # fmt: skip
"""Phrases for any kind, used if no sentence fits. A task never stands beside a loss without a verb,
which says whether the task caused or suffered it."""
_NAME_SIZES = 15, 9
"""Maximum characters of a task's name. Sentences that are too long with the first limit are tried
with the second one and an abbreviated cause."""


def sentence(
    topology: Sequence[Cpu], episodes: Sequence[Episode], names: Sequence[str] = (), *,
    past_tense: bool = False, when: str = "", max_length: int = MAX_SENTENCE,
) -> list[SentencePart]:  # fmt: skip
    """Returns a sentence about episodes of one kind and cause, based on the deepest. `names`: the
    tasks that lost, most important first. `when`: a phrase for the time, optional if too long."""
    deepest = max(episodes, key=lambda e: e.depth or 0.0)
    fields = _phrase_fields(topology, deepest, episodes, past_tense=past_tense)
    by_size = [fields | _task_fields(deepest, names, size) for size in _NAME_SIZES]
    short = cause_of(deepest.cause).short_text
    if short.isupper() or short == "heat":  # other short texts cannot be the subject of a sentence
        by_size[1]["{cause}"] = SentencePart(short[:1].upper() + short[1:])
    if "{label}" in fields and (
        len(fields["{label}"].text) <= max_length or "loser" not in deepest.evidence
    ):
        return _fill_phrase("{label}", by_size[0], "", past_tense=past_tense)
    known_fields = by_size[0].keys()
    phrases = [p for p in kind_of(deepest).sentences if _fields_of(p) <= known_fields]
    numbers = known_fields & _NUMBER_FIELDS
    with_number = [p for p in phrases if not numbers.isdisjoint(_fields_of(p))]
    short_phrases = [p for p in _FALLBACK_PHRASES if _fields_of(p) <= known_fields]
    candidates = [
        *product(with_number or phrases, by_size, [when, ""] if when else [""]),
        *product(short_phrases, by_size[:1], [""]),
    ]
    parts: list[SentencePart] = []
    for phrase, values, end in candidates:
        parts = _fill_phrase(phrase, values, end, past_tense=past_tense)
        if len(text(parts)) <= max_length:
            if "{where}" not in _fields_of(phrase) or "(+" not in values["{where}"].text:
                return parts
            cpus_name = short_cpus_text(topology, _cpus_of(episodes), max_length)
            listing = values | {"{where}": SentencePart(cpus_name)}
            listing_parts = _fill_phrase(phrase, listing, end, past_tense=past_tense)
            return listing_parts if len(text(listing_parts)) <= max_length else parts
    return parts


def _cpus_of(episodes: Sequence[Episode]) -> set[int]:
    return {cpu for episode in episodes for cpu in episode.cpus}


@cache
def _fields_of(phrase: str) -> frozenset[str]:
    return frozenset(piece for piece in _FIELD.split(phrase) if piece.startswith("{"))


def _fill_phrase(
    phrase: str, fields: Mapping[str, SentencePart], end: str, *, past_tense: bool
) -> list[SentencePart]:
    """Fills in the fields of a phrase, chooses the tense of its verbs, and adds `end`, a phrase for
    the time. Adjacent parts with the same role are joined."""
    pieces = []
    for piece in _FIELD.split(phrase):
        present_form, bar, past_form = piece.partition("|")
        verb = (past_form if past_tense else present_form) if bar else piece
        pieces.append(fields.get(piece) or SentencePart(verb))
    if phrase.startswith("{where}"):
        pieces[1] = SentencePart(pieces[1].text[0].upper() + pieces[1].text[1:])
    if end.startswith("for ") and phrase.endswith("of the time"):
        previous_text = pieces[-1].text.removesuffix("the time")
        pieces[-1] = SentencePart(previous_text + end.removeprefix("for "))
    elif end:
        pieces.append(SentencePart(f" {end}" if end.startswith("for ") else f", {end}"))
    joined_parts: list[SentencePart] = []
    for part in pieces:
        if joined_parts and joined_parts[-1].role == part.role:
            joined_parts[-1] = SentencePart(joined_parts[-1].text + part.text, part.role)
        elif part.text:
            joined_parts.append(part)
    return joined_parts


def _phrase_fields(
    topology: Sequence[Cpu], worst: Episode, episodes: Sequence[Episode], *, past_tense: bool
) -> dict[str, SentencePart]:
    """Returns the values of the fields of phrases, except names of tasks."""
    cpus_name = short_cpus_text(topology, _cpus_of(episodes))
    is_plural = any(word.endswith("s") for word in cpus_name.split(" ")) or "(" in cpus_name
    evidence, loss, kind = worst.evidence, loss_text(worst), group_key(worst)[0]
    fields = {
        "{kind}": SentencePart(kind),
        "{where}": SentencePart(cpus_name),
        "{its}": SentencePart("their" if is_plural else "its"),
        "{is}": SentencePart(
            ("were" if past_tense else "are") if is_plural else "was" if past_tense else "is"
        ),
        "{counters}": SentencePart(
            _abbreviated_names(worst.cause.split(", "), len(worst.cause)), "name"
        ),
        "{cause}": SentencePart(subject_of(worst)),
    }
    if (short := cause_of(worst.cause).short_text) not in {"", kind}:
        fields["{short}"] = SentencePart(short)
    if loss:
        fields["{lost}"] = SentencePart(loss, "lost")
    elif worst.depth is not None and worst.kind == "throttle":
        fields["{nothing}"] = SentencePart("without measured loss")
    if loss and (pair := clocks_text(episodes)):
        fields["{clocks}"] = SentencePart(pair, "lost")
    if isinstance(simd := evidence.get("simd"), SimdLevel):
        fields["{level}"] = SentencePart(str(simd.number))
    if {"first_hz", "steady_hz", "steady_s"} <= evidence.keys():
        fields["{climb}"] = SentencePart(short_duration(evidence["steady_s"]), "lost")
        fields["{first}"] = SentencePart(f"{evidence['first_hz'] / 1e9:.2f}")
        fields["{steady}"] = SentencePart(f"{evidence['steady_hz'] / 1e9:.2f} GHz")
    for key in ("owner", "line"):
        if key in evidence:
            name = _abbreviated_names([str(evidence[key])], MAX_OWNER_LENGTH)
            fields[f"{{{key}}}"] = SentencePart(name, "name")
    if "label" in evidence:
        fields["{label}"] = SentencePart(str(evidence["label"]), "name")
    return fields


def _task_fields(worst: Episode, names: Sequence[str], size: int) -> dict[str, SentencePart]:
    """Returns the fields for the tasks that cause the loss and those that lose. Names are truncated
    to `size` characters."""
    fields: dict[str, SentencePart] = {}
    who, own_tasks, named_victims = (culprits(worst, key) for key in ("who", "self", "loser"))
    if named_victims:
        names, pids = [named_victims[0].comm], {task.pid for task in named_victims}
        own_tasks, who = own_tasks or who, [task for task in who if task.pid not in pids]
    # If a loser and another task share a name, their PIDs tell them apart.
    namesakes = {task.comm for task in who}.intersection(names)

    def name_of(tasks: Sequence[TaskOnCpu]) -> str:
        ends = [f"[{task.pid}]" if task.comm in namesakes else "" for task in tasks]
        parts = dict.fromkeys(zip((task.comm for task in tasks), ends, strict=True))
        return _abbreviated_names([cut(comm, size) + end for comm, end in parts], MAX_SENTENCE)

    if names:
        comm = _abbreviated_names(names, size)
        name = name_of(named_victims) if len(named_victims) == 1 else comm
        fields |= {"{loser}": SentencePart(name, "name"), "{comm}": SentencePart(comm, "name")}
    if who and group_key(worst) != STEAL_CAUSE:
        fields["{who}"] = SentencePart(name_of(who), "name")
    elif own_tasks or worst.evidence.get("self"):
        name = name_of(own_tasks) if own_tasks else "the job"
        fields["{own}"] = fields.get("{loser}") or SentencePart(name, "name")
    if worst.cause == "scheduler":
        fields.setdefault("{loser}", SentencePart("The job"))
    return fields


def _abbreviated_names(names: Sequence[str], size: int) -> str:
    """Returns the first name, and the number of the others."""
    first = cut(names[0], size)
    return f"{first} (+{len(names) - 1})" if len(names) > 1 else first


MAX_AGE_WITH_DURATION_NS = 10_000_000_000
"""Maximum age in ns of a running episode that is described by its duration. For an older one, its
start time is shown."""


def duration_phrase(session: Session, episodes: Sequence[Episode], now_ns: int) -> str:
    """Returns a phrase for the episodes' duration or start time, or for both if they end after
    `now_ns` (the displayed time)."""
    start_ns = min(e.start_ns for e in episodes)
    now_ns = max(now_ns, start_ns)  # an episode may have begun after the displayed time
    end_ns = max(now_ns if e.end_ns is None else e.end_ns for e in episodes)
    start, length = time_of_day(session.unix_s(start_ns)), f"for {long_duration(end_ns - start_ns)}"
    if end_ns > now_ns:
        return f"from {start} {length}"
    is_running = any(e.end_ns is None for e in episodes)
    is_long = end_ns - start_ns >= MAX_AGE_WITH_DURATION_NS
    return f"since {start}" if is_running and is_long else length


# --- groups of episodes


def group_key(episode: Episode) -> tuple[str, str]:
    """Returns the group of an episode. Episodes of one group share a sentence. An episode with its
    own sentence has its own group."""
    return group_of(episode.kind, str(episode.evidence.get("label", episode.cause)))


def total_cost(episodes: Iterable[Episode]) -> float:
    """Returns the cost of all episodes together in CPUs, with only the largest loss of each CPU."""
    cost_by_cpu: dict[int, float] = {}
    for episode in episodes:
        share = episode.lost_share
        for cpu in episode.cpus:
            cost_by_cpu[cpu] = max(cost_by_cpu.get(cpu, 0.0), share)
    return sum(cost_by_cpu.values())
