"""Knowledge that a workflow's own functions serve: `react.search_knowledge`, and `react.read` of paths with `ks:`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, Protocol

from chat_proc.attachments.excerpt import cut_excerpt
from chat_proc.catalog.tool import Tool, ToolCall, ToolOutcome, ToolSpec
from chat_proc.tools.context.read import MAX_CHARS, ReadItem, ReadParams
from chat_proc.tools.knowledge.search_knowledge import SEARCH_KNOWLEDGE_TOOL, SearchKnowledgeParams
from everturn.core.errors import EverturnError, Invalid
from everturn.core.threads import call_sized
from everturn.timeline.inert import escape_name
from everturn.turns.model import Effect

READ_TOOL: Final = "react.read"
MAX_RESULT_CHARS: Final = 20_000
PREFIX: Final = "ks:"
_GUIDE: Final = (
    'Finds what this agent knows: `{"query": "how are backups encrypted", "limit": 5}`; `limit` is at most 20. A '
    "result may name a document by its `ks:` path, which `react.read` shows."
)


class KnowledgeFunctions(Protocol):
    """The functions of the workflow that runs for a turn."""

    async def invoke(self, turn_id: str, function: Literal["search", "read"], arguments: Mapping[str, Any]) -> str:
        """The result as a text. Raises Unavailable, Invalid."""
        ...


class WorkflowSearchTool:
    """Offered if the workflow has a function that searches."""

    def __init__(self, functions: KnowledgeFunctions) -> None:
        self._functions = functions
        self.spec = ToolSpec(
            tool_id=SEARCH_KNOWLEDGE_TOOL,
            summary="Search what this agent knows.",
            guide=_GUIDE,
            params=SearchKnowledgeParams,
            effect=Effect.PURE,
            strategy="exploration",
            result_chars=MAX_RESULT_CHARS,
            untrusted=True,
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = SearchKnowledgeParams.model_validate(call.params)
        try:
            found = await self._functions.invoke(call.context.turn_id, "search", params.model_dump())
        except EverturnError as error:
            return ToolOutcome("error", f"Nothing was searched: {error.detail}")
        return ToolOutcome("ok", found or "Nothing was found. Try other words.", untrusted=True)


class WorkflowReadTool:
    """`react.read`, with a function of the workflow for paths with `ks:`."""

    def __init__(self, functions: KnowledgeFunctions, read: Tool) -> None:
        self._functions = functions
        self._read = read
        self.spec = read.spec

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = ReadParams.model_validate(call.params)
        own = [item for item in params.wanted() if item.path.startswith(PREFIX)]
        others = [item for item in params.wanted() if not item.path.startswith(PREFIX)]
        if not own:
            return await self._read.run(call)
        rest = ReadParams(items=list(others), stats_only=params.stats_only) if others else None
        read = None if rest is None else await self._read.run(replace(call, params=rest))
        texts, left, is_failed = [] if read is None else [read.text], MAX_CHARS, read is None or read.status == "error"
        for item in own:
            try:
                text = await self._load(call, item, left, stats_only=params.stats_only)
                is_failed = False
            except EverturnError as error:
                text = f"{escape_name(item.path)}: {error.detail}"
            left -= len(text)
            texts.append(text)
        outcome = ToolOutcome("ok", "") if read is None else read
        return replace(outcome, status="error" if is_failed else "ok", text="\n\n".join(texts), untrusted=True)

    async def _load(self, call: ToolCall, item: ReadItem, left: int, *, stats_only: bool) -> str:
        """Raises EverturnError."""
        wanted, cap = item.read_range(), min(item.read_cap(), left)
        if cap <= 0:
            raise Invalid("not shown: this call has no room for it; read it in another one.")
        name = {"path": item.path.removeprefix(PREFIX)}
        text = await self._functions.invoke(call.context.turn_id, "read", name)
        excerpt = await call_sized(len(text), lambda: cut_excerpt(text, wanted, cap))
        about = f"{escape_name(item.path)}: {excerpt.chars} characters, {excerpt.lines} lines"
        if stats_only:
            return f"{about}; content not shown"
        more = "" if excerpt.next_offset is None else f"; more at offset {excerpt.next_offset}"
        more = more if excerpt.next_line is None else f"; more at line_start {excerpt.next_line}"
        return f"{about}; shown {excerpt.label}{more}\n--- {escape_name(item.path)} {excerpt.label} ---\n{excerpt.text}"


def build_knowledge_tools(functions: KnowledgeFunctions, read: Tool) -> Mapping[Literal["search", "read"], Tool]:
    """The tool that each function serves; `read` is the usual `react.read`."""
    return {"search": WorkflowSearchTool(functions), "read": WorkflowReadTool(functions, read)}
