"""Repeats measurements of this machine that other programs or a hypervisor can disturb."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")
ATTEMPTS = 3


def up_to_three_attempts(test: Callable[P, None]) -> Callable[P, None]:
    """Repeats a test whose assertions fail, because a disturbance fails one attempt, but a fault of
    the code fails all. An attempt must leave the fixtures as they were."""

    @wraps(test)
    def repeated(*arguments: P.args, **options: P.kwargs) -> None:
        for left in reversed(range(ATTEMPTS)):
            try:
                return test(*arguments, **options)
            except AssertionError:
                if not left:
                    raise
        return None

    return repeated
