"""Cases in which the C library's writes fail: an I/O error or a full disk after some bytes, writes
that take only a part, interrupted writes, and fsync that fails. A preloaded library makes writes
fail for the files below one directory. Part of hard_times.py; to run only these cases: "writes"
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from command import argv
from hard_tools import (
    SOURCES,
    Case,
    Result,
    check_complete,
    check_one_line,
    check_recording,
    run_command,
)

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long left = -1;

static int is_ours(int fd) {
    char link[64], path[4096];
    const char *below = getenv("FAILING_BELOW");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0 || !below) return 0;
    path[length] = 0;
    return strncmp(path, below, strlen(below)) == 0;
}

/* The bytes that a write of `count` bytes may write; -1: it fails with errno. */
static ssize_t allowed(int fd, size_t count) {
    const char *how = getenv("FAILING_HOW");
    static int turn;
    if (!how || !is_ours(fd)) return (ssize_t)count;
    if (!strcmp(how, "short")) return count > 1 ? (ssize_t)(count / 2) : (ssize_t)count;
    if (!strcmp(how, "eintr")) {
        if (turn++ % 2 == 0) { errno = EINTR; return -1; }
        return (ssize_t)count;
    }
    if (left < 0) left = atol(strchr(how, '@') ? strchr(how, '@') + 1 : "1000000000");
    if (left == 0) { errno = strncmp(how, "eio", 3) ? ENOSPC : EIO; return -1; }
    ssize_t size = (long)count < left ? (ssize_t)count : left;
    left -= size;
    return size;
}

ssize_t write(int fd, const void *data, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    ssize_t size = allowed(fd, count);
    return size < 0 ? -1 : real(fd, data, (size_t)size);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    ssize_t size = allowed(fd, count);
    return size < 0 ? -1 : real(fd, data, (size_t)size, at);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t at) {
    return pwrite64(fd, data, count, at);
}

static int fails(int fd) {
    const char *how = getenv("FAILING_HOW");
    if (how && !strcmp(how, "fsync") && is_ours(fd)) { errno = EIO; return -1; }
    return 0;
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return fails(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return fails(fd) ? -1 : real(fd);
}
"""
FAILING = {
    "eio@0": "Input/output", "eio@5000": "Input/output", "enospc@0": "No space",
    "enospc@100": "No space", "enospc@5000": "No space", "enospc@100000": "No space",
}  # fmt: skip
"""Kinds of failing writes, each with a word of the error message."""
EARLY = ("eio@0", "eio@5000", "enospc@0", "enospc@100", "enospc@5000")
"""Kinds that fail before the start of a recording is written: there is no recording, and no command
is started."""
HARMLESS = ("short", "eintr", "fsync")
FAST = ("--source", "sim:smt-mix,cpus=64,speed=max")


def library(directory: Path) -> Path:
    path = directory.parent / "failing.so"
    if not path.exists():
        source = directory / "failing.c"
        source.write_text(SOURCE, encoding="ascii")
        partial = directory / "failing.so"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(partial), str(source), "-ldl"]
        subprocess.run(command, check=True)
        source.unlink()
        partial.rename(path)
    return path


def run(directory: Path, failure: str, *arguments: str) -> tuple[int, str, list[str]]:
    preload = {"LD_PRELOAD": str(library(directory)), "FAILING_HOW": failure,
               "FAILING_BELOW": f"{directory}/"}  # fmt: skip
    return run_command(*argv(*arguments), env=os.environ | preload)


def record(directory: Path, failure: str) -> Result:
    path = directory / "r"
    duration = "1h" if failure in FAILING else "20s"
    status, _, message = run(
        directory, failure, "record", "-o", str(path), *FAST, "--duration", duration
    )
    if failure not in FAILING:
        result = Result(f"status {status}").check(status == 0, f"status 0 was due: {message}")
        return check_recording(result, path, 19.0)
    result = check_one_line(status, message, 1, FAILING[failure])
    return result if failure in EARLY else check_recording(result, path)


def ring(directory: Path, failure: str) -> Result:
    path = directory / "box"
    duration = "1h" if failure in FAILING else "20s"
    command = "record", "--ring", "30s", "-o", str(path), *FAST, "--duration", duration
    status, _, message = run(directory, failure, *command)
    if failure in FAILING:
        return check_one_line(status, message, 1, FAILING[failure])
    result = Result(f"status {status}").check(status == 0, f"status 0 was due: {message}")
    status, out, _ = run_command(*argv("summary", str(path), "--json"))
    return result.check(status == 0 and out, f"it cannot be read: status {status}")


def record_around(directory: Path, failure: str) -> Result:
    command = "record", "-o", str(directory / "r"), *FAST, "--", "sh", "-c", "sleep 0.5; exit 7"
    status, _, message = run(directory, failure, *command)
    wanted = 1 if failure in EARLY else 7
    result = Result(f"status {status}, {message[-1:]}").check(status == wanted, f"{wanted} was due")
    report = any(FAILING[failure] in line for line in message) if failure in FAILING else True
    return result.check(report, f"no word of it: {message}")


def stat(directory: Path, failure: str) -> Result:
    path = directory / "out"
    duration = "1h" if failure in FAILING else "20s"
    words = "stat", "--json", *FAST, "-o", str(path), "--duration", duration
    return check_written_file(failure, path, run(directory, failure, *words))


def export(directory: Path, failure: str) -> Result:
    path = directory / "out"
    words = "export", str(SOURCES["large"]), "--format", "jsonl", "-o", str(path)
    return check_written_file(failure, path, run(directory, failure, *words))


def check_written_file(failure: str, path: Path, process: tuple[int, str, list[str]]) -> Result:
    status, _, message = process
    if failure in FAILING:
        result = check_one_line(status, message, 1, FAILING[failure])
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return check_complete(result, text, torn=True) if text.count("\n") > 1 else result
    result = Result(f"status {status}").check(status == 0, f"status 0 was due: {message}")
    return check_complete(result, path.read_text(encoding="utf-8"))


VERBS: dict[str, Callable[[Path, str], Result]] = {
    "record": record, "ring": ring, "record --": record_around, "stat -o": stat, "export": export,
}  # fmt: skip


def case(verb: str, failure: str) -> Case:
    def act(directory: Path) -> Result:
        directory.mkdir()
        return VERBS[verb](directory, failure)

    must = "one line, status 1, what came before can be read"
    return Case(f"writes {failure}", verb, must if failure in FAILING else "nothing happens", act)


CASES = [case(verb, how) for how in (*FAILING, *HARMLESS) for verb in VERBS]
