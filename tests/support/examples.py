"""Commands of perftop in its texts, and the commands that tests run instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from command import argv
from roots import ROOT

from perftop import cli
from perftop.docs import page
from perftop.docs.command_line import described_verbs
from perftop.verbs import help as help_verb

JOB = "true"
INNER = shlex.join(argv())
"""Starts perftop from a command that perftop runs."""
Rules = tuple[tuple[str, str, str], ...]
REPLACEMENTS: Rules = (
    (r" (--group perf )?--sudo\b", "", "tests need no privileges"),
    (r" \| (head|jq \.|sudo tee .*)$", "", "the reader of the pipe is another program"),
    (r" > (\S+)$", "", "the shell writes the file"),
    (r"\./(job|old|new)\b|\bCMD\b|mpirun .*", JOB, "a program of the user"),
    (r"--cpu 3 --isa avx512", "--isa scalar", "not every machine has a CPU 3 or AVX-512"),
    (r"^perftop ramp", r"\g<0> --seconds 1", "time"),
    (r"-r 5( --warmup 1)?", "-r 2", "time"),
    (r"--duration 8h", "--duration 1s", "time"),
    (r"/var/lib/node_exporter/", "", "a directory of this test"),
    (r"/run/perftop-shared/s|\bPATH\b", "socket", "a socket of this test"),
    (r"--remote \S+", "--remote perfprobe", "a path there, which the fake ssh does not know"),
    (r"\bA B\b", "run.perftop today.perftop", "two recordings"),
    (r"--hosts FILE", "--hosts machines", "names of machines that the fake ssh knows"),
    (r"\bFILE\b", "run.perftop", "a recording"),
    (r"\bTOPIC\b", "why", "a page"),
    (r"^perftop (mark) \w+$", rf"perftop record -o run.perftop -- {INNER} \1 link", "inside a run"),
    (r"\bNAME$", "quota", "a recording that comes with perftop"),
    (r"\bVERB\b", "stat", "a verb"),
    (r"sim:… --duration 10$", "sim:idle,speed=max --duration 1", "a scenario, and time"),
    (r"^perftop exporter(?! --)", r"\g<0> --listen unix:metrics", "its port may be taken"),
    (r"^perftop record (?!.*(--duration|-- |--print)).*", r"\g<0> --duration 1s", "it has no end"),
    (r"^perftop record", r"\g<0> --force", "an earlier example wrote the file"),
)  # fmt: skip
"""Pattern, replacement and reason for each change to an example, in the order of application."""
UNTESTED: Rules = (
    (r"^perftop serve$", "", "it only names the verb; running it needs --socket"),
    (r"--prometheus", "", "needs a server; tests/app/verbs/fleet has one"),
    (r"-\?\.json", "", "it reads files that a loop of the shell has written"),
)
"""Examples that no test runs, and the reasons."""
MEASURING_COMMANDS = r"perftop( live| stat| record| why| serve| exporter)?( -|$)"
"""Commands that read a machine; tests use a simulated machine instead, unless an option matches
NO_MACHINE_NEEDED."""
SCREEN_COMMANDS = (
    r"perftop( live| demo| attach| replay| fleet(?!.*--json)|$| -(?!.*(--default|help)))"
)
NO_MACHINE_NEEDED = "--(source|host|attach|print|help|version|default)"
"""Options with which a command names its machine or reads none."""


def lines(text: str) -> Iterator[str]:
    """The commands in a text, from fenced and inline code. A command with alternatives describes
    its syntax and is not an example."""
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    result = re.findall(r"^perf(?:top|probe) .*", fenced, re.MULTILINE)
    result += re.findall(r"`(perf(?:top|probe)(?: [^`]*)?)`", text)
    for line in result:
        words = " ".join(re.sub(r"\s+#.*", "", line).split())
        if not re.search(r"[\[|]…|\[[A-Z-]", words) and words != "perfprobe":
            yield words


def documents() -> dict[str, str]:
    """All texts with commands: README, changelog, the pages, and the help of verbs."""
    results = {
        path.stem: path.read_text(encoding="utf-8")
        for path in (ROOT / "README.md", ROOT / "app/CHANGELOG.md")
    }
    for topic in page.topics():
        path = ROOT / "app/perftop/docs" / f"{topic}.md"
        results[topic] = path.read_text(encoding="utf-8")
    begins = "\n".join(
        f"`{line.partition('  ')[0]}`" for line in help_verb.FIRST_HELP_LINES.splitlines()
    )
    parsers = [verb.parser for verb in described_verbs(cli._parser())]
    report = [part or "" for parser in parsers for part in (parser.description, parser.epilog)]
    return results | {"help": "\n".join([begins, *report])}


def output(name: str, first_command: str) -> list[str]:
    """Returns the output that a text shows: the fenced block that starts with `first_command`."""
    for block in re.findall(r"^```\n(.*?)^```", documents()[name], re.MULTILINE | re.DOTALL):
        if block.startswith(first_command):
            return str(block).splitlines()
    raise AssertionError(f"{name} shows nothing that begins with {first_command!r}")


def examples() -> dict[str, list[str]]:
    """The commands, by the first text that has them."""
    known: set[str] = set()
    results: dict[str, list[str]] = {}
    for name, text in documents().items():
        new = [line for line in dict.fromkeys(lines(text)) if line not in known]
        known |= set(new)
        results[name] = new
    return results


def command_to_test(line: str) -> str | None:
    """The command that a test runs for an example; None if no test runs it."""
    if any(re.search(pattern, line) for pattern, _, _ in UNTESTED):
        return None
    for pattern, new, _ in REPLACEMENTS:
        line = re.sub(pattern, new, line)
    if re.match(MEASURING_COMMANDS, line) and not re.search(NO_MACHINE_NEEDED, line):
        head, dashes, command = line.partition(" -- ")
        scenario = "neighbour" if "lmp" in line else "turbo-drop"
        speed = "9" if dashes or re.match(SCREEN_COMMANDS, line) else "max"
        line = f"{head} --source sim:{scenario},cpus=4,speed={speed}{dashes}{command}"
    return line
