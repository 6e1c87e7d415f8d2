"""`react.search_files`: lists what is local, with sizes and refs, without contents."""

from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.workspace.history import WorkspaceHistory
from chat_proc.workspace.loading import Owner, load_workspace
from chat_proc.workspace.local import LocalFile
from chat_proc.workspace.patterns import Pattern
from chat_proc.workspace.result_text import render_result
from chat_proc.workspace.roots import select_files
from everturn.errors import Invalid
from everturn.model.commits import Effect
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec

MAX_LISTED = 500


class SearchFilesParams(BaseModel):
    """`prefix` is a folder or file, `name_regex` is searched in file names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix: str = Field(default="", max_length=2048)
    name_regex: str | None = Field(default=None, max_length=1000)


class SearchFilesTool:
    """Reads rows, never contents."""

    def __init__(self, history: WorkspaceHistory) -> None:
        self._history = history
        self.spec = ToolSpec(
            tool_id="react.search_files",
            summary="List the files that are local in this turn, with sizes and refs.",
            guide=files("chat_proc.tools.workspace").joinpath("search_files.md").read_text(encoding="utf-8"),
            params=SearchFilesParams,
            effect=Effect.PURE,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = SearchFilesParams.model_validate(call.params), call.context
        owner = Owner(context.principal, context.conversation_id)
        try:
            pattern = Pattern(params.name_regex) if params.name_regex else None
            workspace = await load_workspace(self._history, owner, context.blocks, context.turn_id)
            selection = select_files(workspace, params.prefix, context.conversation_id)
        except Invalid as invalid:
            return ToolOutcome("error", render_result({"prefix": params.prefix, "error": invalid.detail}))
        found = [file for file in selection.files if pattern is None or pattern.find(file.artifact.filename)]
        notices = list(selection.notices)
        if len(found) > MAX_LISTED:
            notices.append(f"{MAX_LISTED} of {len(found)} files are listed; name a folder or a name_regex.")
        result = {
            "prefix": params.prefix,
            "file_count": len(found),
            "total_bytes": sum(file.artifact.size for file in found),
            "files": [_describe(file) for file in found[:MAX_LISTED]],
            "notices": notices,
        }
        return ToolOutcome("ok", render_result(result))


def _describe(file: LocalFile) -> dict[str, Any]:
    described: dict[str, Any] = {
        "path": file.path,
        "logical_path": file.ref,
        "size_bytes": file.artifact.size,
        "mime": file.artifact.mime,
    }
    if file.origin != "own":
        described["read_only"] = file.origin
    if file.taken_from:
        described["checked_out_from"] = file.taken_from
        described["modified"] = file.changed
    return described
