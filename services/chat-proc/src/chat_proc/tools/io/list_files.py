"""`io_tools.list_files`: which files a program of this turn can have, with the paths to read them by."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.tools.code.inputs import load_local
from chat_proc.workspace.history import WorkspaceHistory
from chat_proc.workspace.roots import select_files
from everturn.errors import Invalid
from everturn.model.commits import Effect
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec

MAX_LISTED: Final = 1_000


class ListFilesParams(BaseModel):
    """`folder` is the beginning of the paths."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = Field(default="", max_length=2048)


class ListFilesTool:
    """Reads rows, never contents."""

    def __init__(self, history: WorkspaceHistory) -> None:
        self._history = history
        self.spec = ToolSpec(
            tool_id="io_tools.list_files",
            summary="The files that are local in this turn.",
            guide="",
            params=ListFilesParams,
            effect=Effect.PURE,
            in_loop=False,
            in_programs=True,
            returns="a list of {path, ref, size, mime}, at most 1,000",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        folder = ListFilesParams.model_validate(call.params).folder
        workspace = await load_local(self._history, call.context)
        try:
            selection = select_files(workspace, folder, call.context.conversation_id)
        except Invalid as invalid:
            return ToolOutcome("error", invalid.detail)
        rows = [
            {"path": file.path, "ref": file.ref, "size": file.artifact.size, "mime": file.artifact.mime}
            for file in selection.files[:MAX_LISTED]
        ]
        return ToolOutcome("ok", f"{len(rows)} files", value=rows)
