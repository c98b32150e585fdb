"""Packages as single lines, and the cursor that opens them."""

from __future__ import annotations

import pytest
from fakes import Machine, seen
from playing import Run, play

from perfprobe.wire import Cpu
from perftop.tui.overview.core_grid import Fold, folded
from perftop.tui.shared.places import Places


def machine(packages: int = 3, cores: int = 10) -> Machine:
    """CPUs 0 to 9 in package 0, and so on."""
    m = Machine(cores=packages * cores, threads=1)
    rows = [
        Cpu(cpu, online=True, package=cpu // cores, die=0, core=cpu % cores, thread=0,
            l3=cpu // cores, siblings=[cpu])
        for cpu in range(packages * cores)
    ]  # fmt: skip
    m.hello.topology[:] = rows
    m.hello.packages[:] = [list(range(p * cores, (p + 1) * cores)) for p in range(packages)]
    return m


def kinds(room: int, fold: Fold, cpu: int | None = 0, *, bare: bool = False) -> list[str]:
    places = Places(seen(machine())[0])
    lines = folded(places, 1, room, fold, cpu, bare=bare)
    return [line.kind for line in lines]


def test_all_is_shown_where_there_is_room() -> None:
    assert kinds(33, "needed").count("row") == 30
    assert "folded" not in kinds(33, "needed")


@pytest.mark.parametrize(("cpu", "opened"), [(0, 0), (15, 1), (29, 2), (None, 0)])
def test_only_where_the_cursor_is(cpu: int | None, opened: int) -> None:
    found = kinds(14, "needed", cpu)
    expected = ["folded"] * opened + ["package"] + ["row"] * 10 + ["folded"] * (2 - opened)
    assert found == expected


def test_what_still_fits_stays_open() -> None:
    assert kinds(32, "needed", 29) == ["package", *["row"] * 10, "folded", "package", *["row"] * 10]


def test_never_and_always() -> None:
    assert kinds(5, "never").count("row") == 30
    assert kinds(99, "always") == ["folded"] * 3
    assert kinds(5, "needed", bare=True) == ["row"] * 30


def test_the_cursor_opens_what_it_comes_to() -> None:
    async def act(run: Run) -> None:
        for keys, cpu in ((["down"] * 10, 10), (["up"], 9), (["G"], 29), (["g"], 0)):
            await run.pilot.press(*keys)
            assert run.grid.choice.cpu == cpu
            assert len([line for line in run.text() if line.startswith("▌")]) == 1

    play(machine(), act, (100, 20))


def test_a_folded_package_tells_what_is_wrong_in_it() -> None:
    m = machine()
    m.cpu(15).hz = 2.4e9

    async def act(run: Run) -> None:
        await run.intervals(2)
        assert run.has("1 slower than the others")
        await run.pilot.press("t", "t")
        assert sum(line.lstrip(" ▌").startswith("package") for line in run.text()) == 3
        await run.pilot.press("down")
        assert run.grid.choice.cpu == 10

    play(m, act, (100, 20))
