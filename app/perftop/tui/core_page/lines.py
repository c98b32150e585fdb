"""Text of a core's page, above and below the charts. Lines are cut or padded to the given width."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perftop.base.format import when
from perftop.draw import theme
from perftop.draw.strips import Run, fit, foreign, shed, width
from perftop.model import smt
from perftop.model.episode import Episode
from perftop.model.tasks import task
from perftop.output.sentences import unique_losses
from perftop.session.missing import NAMES, by_reason, doubts, lasting
from perftop.tui.core_page import ramp
from perftop.tui.core_page.layout import NAME, VALUE
from perftop.tui.core_page.numbers import Scene, method
from perftop.tui.shared import time_axis
from perftop.tui.shared.episode_style import because, going


def head(scene: Scene, window: str, keys: Mapping[str, str], size: int) -> list[Run]:
    """Which core this is; `keys`: captions of the keys that go back and zoom."""
    place, online = scene.place, scene.interval.online
    paired = len(place.cpus) > 1
    core = f"core {'-' if place.core is None else place.core}"
    cpus = ", ".join(
        f"{cpu}" if online[row] else f"{cpu} off"
        for cpu, row in zip(place.cpus, place.rows, strict=True)
    )
    pieces: list[tuple[int, str, str]] = [
        (0, core if paired or place.core is not None else f"CPU {cpus}", "bright"),
        (3, "" if place.package is None else f"package {place.package}", "dim"),
        (5, "" if place.l3 is None else f"L3 {place.l3}", "dim"),
        (1, f"CPU{'s' if paired else ''} {cpus}", "text"),
        (4, "" if place.type is None else f"{place.type}-core", "dim"),
        (6, f"{keys['back']} back", "dim"),
        (2, f"{keys['window']} window {window}", "dim"),
    ]
    dotted: list[tuple[int, list[Run]]] = [
        (rank, [*([("· ", "faint")] if rank else []), (foreign(text), key)])
        for rank, text, key in pieces
        if text
    ]
    return [(" ", "text"), *shed(dotted, size - 1, 1)]


def above(scene: Scene, window: str, keys: Mapping[str, str], size: int) -> list[list[Run]]:
    """The first lines of the page: the core, titles of the numbers, and tasks."""
    left = size - scene.size - 1
    name = head(scene, window, keys, left)
    lines = [[*name, (" " * (left - width(name)), "text"), *titles(scene)]]
    return [*lines, who(scene, size)] if scene.page.who else lines


def titles(scene: Scene) -> list[Run]:
    """Titles above the numbers: the sibling or core that they belong to."""
    page = scene.page
    if not page.values or len(scene.place.cpus) == 1:
        return [(" " * scene.size, "text")]
    names = [f"lp{i}" for i in range(page.values)] if page.values > 1 else ["core"]
    text = " " * NAME + "".join(f"{name:>{VALUE - 1}} " for name in names)
    return [(text.ljust(scene.size), "dim")]


def who(scene: Scene, size: int) -> list[Run]:
    """The task on each sibling, with as many details as fit."""
    cpus = scene.place.cpus
    part = (size - 1) // len(cpus)
    runs: list[Run] = [(" ", "text")]
    for i, cpu in enumerate(cpus):
        name = f"lp{i} " if len(cpus) > 1 else ""
        mine: list[Run] = [(name, "dim"), *_task(scene, cpu)]
        runs += _cut(mine, part - 1)
        runs.append((" ", "text"))
    return runs


def _task(scene: Scene, cpu: int) -> list[Run]:
    found = task(scene.interval.tasks.get(str(cpu)))
    if found is None:
        return [("no task seen", "faint")]
    runs: list[Run] = [(foreign(f"{found.comm}:{found.pid}"), "text")]
    runs.append((f" {100 * found.share:.0f} %", "dim"))
    details = scene.session.details.get(str(found.pid), {})
    for key in ("user", "command"):
        if isinstance(text := details.get(key), str) and text:
            runs += [("  ", "text"), (foreign(text[:400]), "dim" if key == "user" else "faint")]
    return runs


def _cut(runs: Iterable[Run], size: int) -> list[Run]:
    """The runs, cut or padded to exactly `size` cells."""
    done: list[Run] = []
    for text, key in runs:
        if size > 0:
            done.append((fit(text, min(size, len(text))), key))
            size -= len(done[-1][0])
    return [*done, (" " * size, "text")]


# --- notes: what is wrong, what is over, what is unknown


def notes(scene: Scene, size: int, lines: int) -> list[list[Run]]:
    """Notes, the most important first; the last line says how many were left out."""
    if not lines:
        return []
    found = [*_episodes(scene), *_missing(scene), *_method(scene)]
    more = f"  and {len(found) - lines} more " if len(found) > lines else ""
    shown = [_cut(line, size) for line in found[: lines - bool(more)]]
    if more:
        shown.append([*_cut(found[lines - 1], size - len(more)), (more, "text")])
    return shown + [[] for _ in range(lines - len(shown))]


def _method(scene: Scene) -> Iterable[list[Run]]:
    """How the SMT states were found, unless the numbers beside them say so."""
    how, panels = method(scene), scene.page.panels
    if how == "bounds":
        yield [("   SMT states not counted here: ", "dim"), (theme.UNKNOWN, "unknown"),
               (" may be any of them", "dim")]  # fmt: skip
    beside = any(panel.key == "smt" and panel.lines > len(smt.STATES) for panel in panels)
    if len(scene.place.cpus) > 1 and not (beside and len(how) <= scene.size):
        yield [(f"   SMT states by {how}", "dim")]


def _episodes(scene: Scene) -> Iterable[list[Run]]:
    """Running episodes, then doubts about this interval, then episodes that are over."""
    interval, place = scene.interval, scene.place
    worst = {"alarm": 0, "warn": 1}
    ordered = sorted(
        unique_losses(scene.episodes),
        key=lambda e: (worst.get(time_axis.mark(e)[1], 2), -e.start_ns),
    )
    yield from (_episode(scene, e) for e in ordered if going(e, interval.time_ns))
    for cpu, row in zip(place.cpus, place.rows, strict=True):
        if reasons := doubts(interval, row):
            text = f"CPU {cpu}  {'; '.join(reasons)}"
            yield [(f" {theme.SUSPECT} {foreign(text)}", "dim")]
    yield from (_episode(scene, e) for e in ordered if not going(e, interval.time_ns))


def _episode(scene: Scene, episode: Episode) -> list[Run]:
    sign, key = time_axis.mark(episode)
    now = going(episode, scene.interval.time_ns)
    end_ns = scene.interval.time_ns if now or episode.end_ns is None else episode.end_ns
    since = when(scene.session.unix(episode.start_ns))
    lasted_s = max(0, end_ns - episode.start_ns) / 1e9
    climb = _climb(scene, episode)
    span = since + (f"  {lasted_s:.1f} s" if lasted_s and not climb else "")
    why = climb or because(episode)
    return [
        (foreign(f" {sign} {episode.kind}"), key if now else "dim"),
        (f"  since {span}" if now else f"  {span}", "text" if now else "dim"),
        (foreign(f"  {why}") if why else "", "dim"),
    ]


def _climb(scene: Scene, episode: Episode) -> str:
    """Description of a ramp; '' for other episodes."""
    if episode.kind != "ramp":
        return ""
    cpus = {*episode.cpus}
    cores = sum(not cpus.isdisjoint(core) for core in scene.session.cores)
    return ramp.words(episode, cores, scene.unit)


def _missing(scene: Scene) -> Iterable[list[Run]]:
    """What is unknown of this core, why, and how to fix it."""
    session, cpus = scene.session, set(scene.place.cpus)
    bounds = scene.interval.split.method[scene.place.at] == "bounds"
    names = NAMES | (dict.fromkeys((*smt.ANY_COUNTERS, "traced"), "SMT states") if bounds else {})
    here = [m for m in lasting(session) if m.cpus is None or not cpus.isdisjoint(m.cpus)]
    reasons = by_reason(here, lambda missing: names.get(missing.what))
    order = list(dict.fromkeys(names.values()))
    for (why, fix), lost in sorted(reasons.items(), key=lambda item: -len(item[1])):
        what = ", ".join(sorted(lost, key=order.index))
        text = f" {theme.RULE} {what} unknown: {why}" + (f" · {fix}" if fix else "")
        yield [(foreign(text), "dim")]
