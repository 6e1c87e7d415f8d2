"""Functions that return something for the person: the person gets a file, and the model one line about it."""

import re
from dataclasses import replace
from typing import Final

from chat_proc.catalog.tool import Rendered, Tool, ToolCall, ToolOutcome, ToolSpec
from chat_proc.tools.stored_files import ProducedFile, check_room, read_destination, save_file
from chat_proc.workspace.local import fold_workspace
from everturn.core.errors import Invalid
from everturn.files.model import ArtifactKind
from everturn.files.objects import Objects

_MIME: Final = re.compile(r"(?=.{3,100}\Z)[\w.+-]++/[\w.+-]++(?:; ?charset=[\w-]++)?", re.ASCII)


class RenderingTool:
    """Runs another tool, and stores what it renders as a file in `outputs/`.

    A model that reads a page of HTML tends to write it again in its answer, so it does not get the text.
    """

    def __init__(self, tool: Tool, objects: Objects) -> None:
        self._tool = tool
        self._objects = objects

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, call: ToolCall) -> ToolOutcome:
        outcome = await self._tool.run(call)
        return await self._store(call, outcome, outcome.value) if isinstance(outcome.value, Rendered) else outcome

    async def _store(self, call: ToolCall, outcome: ToolOutcome, rendered: Rendered) -> ToolOutcome:
        data, context = rendered.text.encode("utf-8", errors="replace"), call.context
        try:
            if rendered.mime and not _MIME.fullmatch(rendered.mime):
                raise Invalid(f"{rendered.mime[:100]!a} is not a type such as 'text/html'.")
            destination = read_destination(f"outputs/{rendered.filename}", context, default=ArtifactKind.OUTPUT)
            check_room(fold_workspace(context.blocks, context.turn_id), destination, len(data))
        except Invalid as invalid:
            return ToolOutcome("error", f"{self.spec.tool_id} returned a file that can't be stored: {invalid.detail}")
        saved = await save_file(self._objects, call, ProducedFile(destination, data, "external", "agent"))
        artifact = saved.model_copy(update={"mime": rendered.mime}) if rendered.mime else saved
        said = f"The user sees the file {artifact.filename} ({artifact.ref}) with the answer. Don't repeat its content."
        return replace(outcome, text=said, value=rendered.text, artifacts=(*outcome.artifacts, artifact))
