"""Walks: pictures of the app after keys that are pressed one after the other.

A step is a line with its name and its keys; a word in quotes is typed, end*3 is three times the
same key, @x,y is a click there, @@x,y a double click, @x,y-x,y a drag (y may be "last"), and +s
lets a recording play for s seconds.
The picture of a step has only the lines that differ from the picture before it.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot
from textual.strip import Strip

from perftop.recording.file import Recording
from perftop.tui.app import PerfTopApp
from perftop.tui.pair_page import Alignment
from perftop.tui.pair_screen import PairSource
from perftop.tui.replay import PLAY_STEP_S, ReplaySource

sys.path.append(str(Path(__file__).parent.parent / "support"))  # missing if golden.py is run
from waiting import until_quiet, until_true

SPECS = {
    "play": "demo,cpus=16,packages=2",
    "part": "neighbour,cpus=16,packages=2",
    "many-slots": "smt-mix,cpus=80,packages=2,slots=1",
    "eight": "smt-mix,cpus=96,smt=8",
    "clocks": "turbo-drop,cpus=12,smt=1",
    "slots": "smt-mix,cpus=8,slots=1",
    "threads": "smt-mix,cpus=8,smt=4",
    "guests": "guest,cpus=64",
    "memories": "memory,cpus=64",
    **{name: f"{name},cpus=8" for name in ("throttle", "halts", "memory", "hotplug", "steady")},
}
"""Simulated machines, besides those of golden.py."""
SECONDS = {"play": 66.0, "throttle": 33.0, "memory": 25.0, "memories": 18.0, "hotplug": 30.0,
           **dict.fromkeys(("slots", "many-slots", "threads", "eight", "steady"), 5.0)}  # fmt: skip

ROWS = """
start
rows            down down down
folded          t
other-package   down
unfolded        up t
order           o
worst           o
reversed        r
MHz             u
multiples       u
jobs            a
groups          a
usual           r o u a
sort-menu       s
sort-page       pagedown pagedown pageup
sort-chosen     down down
sorted          enter
filter          slash 'busy>50'
filtered        enter
no-match        slash ctrl+u 'nosuch'
bad-filter      ctrl+u 'busy>'
all             escape backslash
last            end
first           home
previous        N
earlier         N
sample-back     left left
range-from      less_than_sign
range-to        shift+left greater_than_sign
remedy          y
held            d
compared        less_than_sign shift+left greater_than_sign
report          w
back            escape escape
live            space
jump            J '-8s'
jumped          enter
mark            m 'solve' enter
resumed         space
why             w
why-end         end
closed          escape
try             y
copied          y
core            enter
core-window     left_square_bracket left_square_bracket
core-wide       right_square_bracket right_square_bracket right_square_bracket
core-below      down
core-past       space left left left
core-left       space escape
interval        plus
shorter         minus minus
palette         colon 'table'
"""
VIEWS = """
heat            2
heat-below      down right
heat-worst      W
heat-next       W
heat-package    z
heat-metric     z v
heat-metric-2   v
heat-metric-3   v v
heat-order      o
heat-back       V V V V o
time            3
time-below      down down
time-metric     v
time-window     left_square_bracket left_square_bracket
time-past       space left shift+left
time-episode    n
time-range      less_than_sign left left greater_than_sign
time-order      escape space space o
time-filter     slash '2' enter
time-no-match   slash ctrl+u '99' enter
table           backslash o 4
table-right     right right right
table-below     down down down
table-columns   c
table-chosen    space down down space
table-few       enter
table-sort      s down enter
table-reverse   r
table-tasks     s end enter
table-units     u
table-units-2   u
table-filter    slash 'pkg:1' enter
episodes        backslash 5
episode-below   down
episode-open    enter
episode-filter  escape 5 slash '4' enter
episode-none    slash ctrl+u '99' enter
episode-next    backslash n n N
episode-second  escape 5 down down enter
neighbours      6
pair            down
pairs           down down
fold            t
next-view       tab
previous-view   shift+tab
help            question_mark
help-below      pagedown
help-end        end
light           escape T
next-theme      T
"""
EVENTS = """
start
list            5
below           down
report          w
core            escape 1 down enter
flows           escape 6
heat            2
time            3
time-metric     v v
table           4
table-groups    a
worst-first     1 o o
"""
HEADINGS = """
start
sorted          @35,6
reversed        @35,6
by-core         @4,6
no-column       @119,6
package         @20,7
folded          t
row             @20,10
opened          @@20,10
closed          escape
"""
CLICKS = """
start
row             @30,15
chart-paused    @60,20
live            space
task            @55,45
episode         @110,46
back            1 space
opened          @@110,46
closed          escape 1 space
key             @4,49
heat            2 @11,12
heat-opened     @@16,17
core-chart      @60,12
core-episode    @20,41
core-back       1 space
time            escape 3 @80,12
time-row        space @3,14
table           4 @18,8
table-twice     @18,8
table-row       @30,12
list            5 @20,9
neighbours      6 @40,11
key-line        @8,49
prompt-closed   slash @8,49
verdict         @60,1 1 @60,2
report-closed   escape
dragged         1 space @45,20-30,20
range-back      escape space
not-a-range     d y
menu            s @150,5
chosen          @1,1
"""
GUEST = """
start
narrower        left_square_bracket left_square_bracket
below           down
jobs            a
sorted          o
core            enter
other-core      down
heat            escape 2
time            3
table           4
table-none      slash '99' enter
list            backslash 5
flows           6
help            question_mark
"""
LARGE = """
start
end             end
above           up up
heat            2 end
heat-above      up left
zoom            z
worst           z W
pages           z pageup home pagedown
clocks          v u
multiples       u
rows            1
all-folded      t
below           down down down
all-open        t
bottom          end
package         home t t down
table           4 end
time            3 end
filter          slash 'pkg:1 busy>20' enter
"""
CLOCKS = """
start
below           down down
right           @120,20
above           up
last            end
past            space left
core            enter
"""
TOUR = """
start
heat            2
table           4
help            question_mark
why             escape w
episode         escape n
closed          escape
"""
FLOWS = """
start
flows           6
below           down
pairs           down down
threads         t
opened          enter
"""
SIGNS = """
start
core            down enter
heat            escape 2
time            3
table           4
list            5
flows           6
help            question_mark
report          escape w
"""
PLAYED = """
start
paused          space
forward         right right
later           shift+right
episode         n
next            n
previous        N
faster          right_curly_bracket right_curly_bracket
slower          left_curly_bracket
mark            m 'here' enter
range           less_than_sign shift+right greater_than_sign
held            d
compared        shift+right less_than_sign shift+right greater_than_sign
end             dollar_sign
ended           space
time            3
list            5 down
report          w
start-again     escape 0
played          1 space +2
faster-played   right_curly_bracket +1
paused-again    space +4
from-the-past   shift+left space +2
to-the-end      +90
jump            J '-5s' enter
bad-jump        J 'x'
help            escape question_mark
"""
FLEET = """
start
rows            down down
folded          t
sorted          s
reversed        r
sorted-back     S r
filter          slash '03'
filtered        enter
all             backslash escape
silent          slash '08' enter 1 end
all-again       backslash escape
heat            2
metric          v
heat-below      down right
heat-cell       @31,8
episodes        3
below           down down
next            n
last            G
rows-again      1
title           @17,5
title-again     @17,5
row             @10,9
alike           t
page            pagedown
paused          space left
help            question_mark
key-line        escape @4,last
no-match        slash 'nosuch' enter
light           backslash escape T
"""
PAIR = """
start
next            n
another         n
narrower        left_square_bracket
later           right right
range-from      less_than_sign
no-range        greater_than_sign
range           right right greater_than_sign
back            escape
aligned         a
aligned-next    a
report          w
closed          escape
cursor          @60,5
outside         @5,5
dragged         @50,5-70,5
end             dollar_sign
begin           0
wider           right_square_bracket right_square_bracket
help            question_mark
"""
GROUPS = """
start
end             end
menu            s up enter
heat            s home enter 2
heat-package    z end
time            3
time-end        end
time-clock      v
time-states     v v
time-halts      v v
time-power      v*9
table           4 end
found           1 colon 'cpu 5' enter
filtered        slash '0-5' enter n N
marked          escape space left less_than_sign left greater_than_sign m 'x' enter
jobs            escape a s up*2 enter
report          @40,2
"""
ENDS = """
start
slowest         left_curly_bracket*9
paused          space
fastest         right_curly_bracket*12
begin           0 left shift+left
end             dollar_sign right shift+right
widest          right_square_bracket*8
first           home up pageup
last            end down pagedown
narrowest       left_square_bracket*8
coarsest        plus*9
finest          minus*12
core            enter end down
core-first      home up
heat            escape 2 end down right
heat-first      home up left
metric          V
metric-back     v
metric-on       v
time            3 end down
time-first      home up
table           4 end down right*12
table-first     home up left*14
table-sort      s end down pagedown
table-sorted    s home up pageup
list            escape 5 end down
list-first      home up
list-page       pagedown*2 pageup*2
flows           6 end down
flows-first     home up
earliest        1 N*4
latest          n*6
help            question_mark pagedown*5
help-first      pageup*6
report          escape w pagedown*2 down*2
report-first    pageup*2 up*2
"""
WIDE, SMALL, TINY = (160, 50), (80, 24), (60, 10)
WALKS: dict[str, tuple[str, str, tuple[int, int]]] = {
    "rows-160": ("play", ROWS, WIDE),
    "rows-80": ("play", ROWS, SMALL),
    "views-160": ("play", VIEWS, WIDE),
    "views-80": ("job", VIEWS, SMALL),
    "hybrid-120": ("hybrid", EVENTS, (120, 40)),
    **{f"{name}-160": (name, EVENTS, WIDE) for name in ("throttle", "halts", "hotplug")},
    "memory-240": ("memory", EVENTS, (240, 60)),
    "memories-120": ("memories", EVENTS, (120, 30)),
    "guests-120": ("guests", EVENTS, (120, 30)),
    "hotplug-80": ("hotplug", EVENTS, SMALL),
    "clocks-160": ("clocks", CLOCKS, WIDE),
    "slots-200": ("slots", EVENTS, (200, 40)),
    "threads-120": ("threads", EVENTS, (120, 30)),
    "steady-80": ("steady", SIGNS, SMALL),
    "tour-120": ("steady", TOUR, (120, 30)),
    "guest-100": ("guest", GUEST, (100, 30)),
    "guest-160": ("guest", GUEST, WIDE),
    "guest-41": ("guest", GUEST, (41, 20)),
    "mixed-80": ("mixed", LARGE, SMALL),
    "mixed-120": ("mixed", LARGE, (120, 31)),
    "clicks-160": ("play", CLICKS, WIDE),
    "headings-120": ("mixed", HEADINGS, (120, 30)),
    "flows-160": ("job", FLOWS, WIDE),
    "ascii-120": ("job", SIGNS, (120, 30)),
    "plain-120": ("in-episode", SIGNS, (120, 30)),
    "16-120": ("in-episode", SIGNS, (120, 30)),
    "part-120": ("part", EVENTS, (120, 31)),
    "many-slots-240": ("many-slots", GROUPS, (240, 60)),
    "eight-160": ("eight", GROUPS, (160, 30)),
    "tiny-60": ("in-episode", SIGNS, TINY),
    "played-160": ("play", PLAYED, WIDE),
    "played-80": ("job", PLAYED, SMALL),
    "played-100": ("in-episode", ENDS, (100, 24)),
    "fleet-160": ("small", FLEET, WIDE),
    "fleet-120": ("middle", FLEET, (120, 30)),
    "fleet-80": ("many", FLEET, SMALL),
    "pair-160": ("in-episode", PAIR, WIDE),
    "pair-80": ("in-episode", PAIR, SMALL),
}  # fmt: skip
"""The machine or the fleet, the steps and the size of each walk."""


def picture(app: PerfTopApp) -> list[str]:
    """The lines of the screen: a digest of the styles of each line, and its text."""
    lines = []
    for segments in app.screen._compositor.render_strips():
        strip = segments if isinstance(segments, Strip) else Strip(segments)
        looks = [(s.text, str(s.style)) for s in strip.simplify()]
        digest = hashlib.sha256(repr(looks).encode()).hexdigest()[:6]
        lines.append(f"{digest} {strip.text.rstrip()}")
    return lines


def names(steps: str) -> list[str]:
    return [step.split()[0] for step in steps.strip().splitlines()]


def keys_of(words: str) -> list[str]:
    keys = []
    for word in words.split():
        key, _, count = word.partition("*")
        keys += [*word.strip("'")] if word.startswith("'") else [key] * int(count or 1)
    return keys


def _position(words: str, height: int) -> tuple[int, int]:
    x, _, y = words.partition(",")
    return int(x), height - 1 if y == "last" else int(y)


def difference(before: Sequence[str], after: Sequence[str]) -> str:
    """The lines that are not as before, with their numbers."""
    return "".join(
        f"{y:2} {line}\n" for y, line in enumerate(after, 1) if before[y - 1 : y] != [line]
    )


async def walk(opened: AbstractAsyncContextManager[PerfTopApp], steps: str) -> dict[str, str]:
    """The pictures of the steps, by name."""
    pictures, before = {}, list[str]()
    async with opened as app:
        pilot = Pilot(app)
        for step in steps.strip().splitlines():
            name, *words = step.split(maxsplit=1)
            for key in keys_of(" ".join(words)):
                if key.startswith("@"):
                    start, *end = (
                        _position(s, app.size.height) for s in key[1:].strip("@").split("-")
                    )
                    if end:
                        await pilot.mouse_down(offset=start)
                        await pilot.hover(offset=end[0])
                        await pilot.mouse_up(offset=end[0])
                    else:
                        await pilot.click(offset=start, times=key.count("@"))
                elif key.startswith("+"):
                    await _play(app, float(key))
                else:
                    await pilot.press(key)
                await _settled(app)
            await _settled(app)
            after = picture(app)
            pictures[name] = difference(before, after)
            before = after
    return pictures


async def _play(app: PerfTopApp, seconds: float) -> None:
    assert isinstance(app.source, ReplaySource)
    end_s = app.source.clock() + seconds
    app.source.clock = lambda: end_s
    await asyncio.sleep(3 * PLAY_STEP_S)


async def _settled(app: PerfTopApp) -> None:
    """Waits until seeks in a recording have ended and everything is drawn."""
    await until_quiet()
    await until_true(lambda: not any(w.group in {"deepen", "seek"} for w in app.workers), "sought")
    await until_quiet()


@asynccontextmanager
async def compared(paths: Sequence[Path], size: tuple[int, int]) -> AsyncIterator[PerfTopApp]:
    """The app on two recordings, once it has read both."""
    with Recording(paths[0]) as a, Recording(paths[1]) as b:
        source = PairSource((a, b), Alignment("mark", "solve"))
        app = PerfTopApp(source)
        async with app.run_test(size=size):
            await until_true(lambda: source.screen.pair.comparison, "both are compared")
            yield app
