"""Folded packages, and the cursor that opens them."""

from __future__ import annotations

import pytest
from fakes import Machine, observe
from playing import Run, running_app

from perfprobe.wire import Cpu
from perftop.tui.overview.overview import Arrangement, Fold, arrange
from perftop.tui.shared.choice import Places


def machine(packages: int = 3, cores: int = 10) -> Machine:
    """Package 0 has CPUs 0 to 9, and so on."""
    m = Machine(cores=packages * cores, threads=1)
    rows = [
        Cpu(cpu, online=True, package=cpu // cores, die=0, core=cpu % cores, thread=0,
            l3=cpu // cores, siblings=[cpu])
        for cpu in range(packages * cores)
    ]  # fmt: skip
    m.hello.topology[:] = rows
    m.hello.packages[:] = [list(range(p * cores, (p + 1) * cores)) for p in range(packages)]
    return m


def arranged(room: int, fold: Fold, cpu: int | None = 0, *, bare: bool = False) -> Arrangement:
    return arrange(Places(observe(machine())[0]), room, fold, cpu, None, bare=bare)


def kinds(room: int, fold: Fold, cpu: int | None = 0, *, bare: bool = False) -> list[str]:
    plan = arranged(room, fold, cpu, bare=bare)
    return [line.kind for line in (*plan.above, *plan.lines, *plan.below)]


def packages(run: Run) -> dict[str, int]:
    """Positions of the packages' lines in the grid, by name."""
    grid = run.grid
    lines = enumerate(grid.render_line(y).text for y in range(grid.size.height))
    return {line[3:12]: y for y, line in lines if line[3:].startswith("package")}


@pytest.mark.parametrize(("cpu", "opened"), [(0, 0), (15, 1), (29, 2), (None, 0)])
def test_only_the_package_with_the_cursor_is_open(cpu: int | None, opened: int) -> None:
    result = kinds(14, "needed", cpu)
    expected = ["folded"] * opened + ["package"] + ["row"] * 10 + ["folded"] * (2 - opened)
    assert result == expected


@pytest.mark.parametrize(("cpu", "opened"), [(0, 0), (15, 1), (29, 2)])
def test_the_lines_of_all_packages_remain_while_rows_scroll(cpu: int, opened: int) -> None:
    plan = arranged(10, "needed", cpu)
    assert [line.kind for line in plan.above] == ["folded"] * opened + ["package"]
    assert [line.kind for line in plan.lines] == ["row"] * 10
    assert [line.kind for line in plan.below] == ["folded"] * (2 - opened)


def test_packages_remain_open_if_they_fit() -> None:
    assert kinds(32, "needed", 29) == ["package", *["row"] * 10, "folded", "package", *["row"] * 10]


def test_folding_can_be_never_or_always() -> None:
    assert kinds(5, "never").count("row") == 30
    assert kinds(12, "never") == [*["folded"] * 3, *["row"] * 30]
    assert kinds(99, "always") == ["folded"] * 3
    assert kinds(5, "needed", bare=True) == ["row"] * 30


async def test_the_cursor_opens_the_package_it_moves_to() -> None:
    async with running_app(machine(), (100, 20)) as run:
        for keys, cpu in ((["down"] * 10, 10), (["up"], 9), (["G"], 29), (["g"], 0)):
            await run.pilot.press(*keys)
            assert run.grid.choice.cpu == cpu
            lines = [run.grid.render_line(y).text for y in range(run.grid.size.height)]
            assert sum(line.startswith("▌") for line in lines) == 1
            assert len(packages(run)) == 3


async def test_the_cursor_moves_over_folded_packages() -> None:
    async with running_app(machine(), (100, 20)) as run:
        await run.pilot.press("t", "t")
        assert len(packages(run)) == 3
        await run.pilot.press("down")
        assert run.grid.choice.cpu == 10


async def test_a_click_on_the_line_of_a_package_opens_it() -> None:
    async with running_app(machine(), (100, 18)) as run:
        await run.pilot.click("#overview", offset=(20, packages(run)["package 2"]))
        assert run.grid.choice.cpu == 20
        await run.pilot.click("#overview", offset=(20, packages(run)["package 1"]))
        assert run.grid.choice.cpu == 10


async def test_a_click_on_a_title_sorts() -> None:
    async with running_app(machine(), (100, 20)) as run:
        for expected in ("busy_hz", "busy_hz"):
            x = run.grid.render_line(0).text.index("GHz")
            await run.pilot.click("#overview", offset=(x, 0))
            assert run.grid.choice.order == expected
        assert run.grid.choice.reverse
        assert "▲GHz" in run.grid.render_line(0).text
