"""The part of the main screen that shows a command's output, below the view or in its place."""

from __future__ import annotations

from collections.abc import Mapping

from perftop.tui.frame.command_output import Extent, Output
from perftop.tui.screen.choosing import Choosing
from perftop.tui.screen.messages import Printed

NEXT: dict[Extent, Extent] = {"small": "whole", "whole": "hidden", "hidden": "small"}


class Paned(Choosing):
    output: Output | None = None
    """The pane; None until the command prints something."""
    captions: Mapping[str, str]
    """Names of keys, by id."""

    async def on_printed(self, message: Printed) -> None:
        if self.output is None:
            caption = self.captions["output"]
            self.output = Output(message.printout, caption, ascii_=self.choice.ascii)
            await self.mount(self.output, after=self.view)
            self.again()
        self.output.show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        there = action != "output" or self.output is not None
        return there and super().check_action(action, parameters)

    def action_output(self) -> None:
        if self.output is not None:
            self.extend(NEXT[self.output.extent])

    def extend(self, extent: Extent) -> None:
        """Sets the extent of the output; while it is "whole", the view is hidden."""
        assert self.output is not None
        self.output.extend(extent)
        self.view.display = extent != "whole"
        (self.output if extent == "whole" else self.view).focus()
        self.again()

    def uncover(self) -> None:
        """Makes the view visible if the output hides it."""
        if self.output is not None and self.output.extent == "whole":
            self.extend("small")
