"""Reads the tables of the JSON pages, and checks values against them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perftop.docs.page import read_page, split_cells, topics

INHERITS = {"run": "summary", "phase": "summary", "episode-start": "episode"}
"""Types of lines that also have the keys of another type, except those of a whole run."""
NOT_INHERITED = {"run": {"cpus", "cores"}}


def tables() -> dict[str, dict[str, str]]:
    """Returns the type of each key, by name of the table."""
    results: dict[str, dict[str, str]] = {}
    name = ""
    pages = (read_page(topic) for topic in topics() if topic.startswith("json"))
    for block in (block for page in pages for block in page.blocks):
        if block.kind == "heading":
            name = block.lines[0]
        elif block.kind == "table" and split_cells(block.lines[0])[0] == "key":
            for row in block.lines[1:]:
                keys, value, _ = split_cells(row)
                keyed = {key.strip(" `"): value for key in keys.split(",")}
                report = results.setdefault(name, {})
                assert not keyed.keys() & report.keys(), f"{name}: described twice: {keys}"
                report.update(keyed)
    for name, other in INHERITS.items():
        left = NOT_INHERITED.get(name, set())
        kept = {key: value for key, value in results[other].items() if key not in left}
        results[name] = kept | results.get(name, {})
    return results


TABLES = tables()
PLAIN_TYPES: dict[str, type | tuple[type, ...]] = {
    "text": str, "number": (int, float), "integer": int, "boolean": bool, "null": type(None),
    "any": object,
}  # fmt: skip


def alternatives(text: str) -> list[str]:
    """Splits a type at slashes outside brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign, 0)
        if sign == "/" and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def faults(value: Any, text: str, at: str) -> list[str]:
    """Returns the faults of a value by its type on the page; none if an alternative fits."""
    named = [
        alternative
        for alternative in alternatives(text)
        if (alternative == "null") is (value is None)
    ]
    tried = [list(_faults(value, alternative, at)) for alternative in named or [text]]
    return min(tried, key=len)


def _faults(value: Any, text: str, at: str) -> Iterator[str]:
    if text.startswith(("[", "{")):
        inner = text[1:-1]
        if not isinstance(value, list if text[0] == "[" else dict):
            yield f"{at} is no {text}"
            return
        pairs = enumerate(value) if isinstance(value, list) else value.items()
        for key, each in pairs:
            yield from faults(each, inner, f"{at}.{key}")
    elif text in PLAIN_TYPES:
        if not isinstance(value, PLAIN_TYPES[text]) or (
            isinstance(value, bool) and text != "boolean"
        ):
            yield f"{at} is no {text}: {value!r:.40}"
    elif not isinstance(value, dict):
        yield f"{at} is no {text}"
    else:
        yield from object_faults(value, text, at)


def object_faults(value: dict[str, Any], name: str, at: str) -> Iterator[str]:
    table = TABLES[name]
    chosen = {key: "e.NAME" for key in value if key.startswith("e.")}  # keys of the events of -e
    value = {chosen.get(key, key): each for key, each in value.items()}
    for key in value.keys() - table.keys():
        yield f"{at}.{key} is not on the page"
    for key, message in table.items():
        if key in value:
            yield from faults(value[key], message.removeprefix("optional "), f"{at}.{key}")
        elif not message.startswith("optional "):
            yield f"{at}.{key} is missing"
