"""What a user says of a measurement: labels, the command, and the interval to report at. It goes
into the hello, so that recordings and all that is made of them have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfprobe import wire
from perfprobe.frozen import field, frozen, replace
from perftop.process.run_notes import spoken


@frozen
class Identity:
    labels: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    interval_ns: int | None = None

    def on(self, hello: wire.Hello) -> wire.Hello:
        """The hello with it. What a stream says of itself already stays, where the user is
        silent."""
        return replace(
            hello,
            labels=hello.labels | dict(self.labels),
            command=spoken(self.command) or hello.command,
            interval_ns=self.interval_ns or hello.interval_ns,
        )


UNNAMED = Identity()
