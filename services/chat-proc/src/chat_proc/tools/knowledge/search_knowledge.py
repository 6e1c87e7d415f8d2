"""`react.search_knowledge`: finds passages in the documents of the agent's bundle, and makes the documents sources."""

import re
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import SourcePool, ToolCall, ToolOutcome, ToolSpec
from chat_proc.knowledge.reader import KnowledgeHits, KnowledgeReader
from everturn.core.errors import EverturnError, Unavailable
from everturn.core.refs import knowledge_ref
from everturn.knowledge.store import MAX_RESULTS, FoundPassage
from everturn.timeline.inert import escape_line
from everturn.timeline.sources import Source, SourceDraft
from everturn.turns.model import Effect

SEARCH_KNOWLEDGE_TOOL = "react.search_knowledge"
MAX_QUERY_CHARS = 1_000
_PAGE = re.compile(r"page [0-9]{1,6}")


class SearchKnowledgeParams(BaseModel):
    """What to look for, and how many passages at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARS)
    limit: int = Field(default=5, ge=1, le=MAX_RESULTS)


class SearchKnowledgeTool:
    """Offered to agents whose bundle has knowledge."""

    def __init__(self, knowledge: KnowledgeReader) -> None:
        self._knowledge = knowledge
        self.spec = ToolSpec(
            tool_id=SEARCH_KNOWLEDGE_TOOL,
            summary="Search the documents of this agent; what is found becomes a source.",
            guide=files("chat_proc.tools.knowledge").joinpath("search_knowledge.md").read_text(encoding="utf-8"),
            params=SearchKnowledgeParams,
            effect=Effect.PURE,
            strategy="exploration",
            result_chars=2 * MAX_RESULTS * 1_000,
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = SearchKnowledgeParams.model_validate(call.params)
        try:
            hits = await self._knowledge.search(params.query, params.limit)
        except Unavailable as error:
            return ToolOutcome("error", f"Nothing was searched: {error.detail or error}.")
        return build_outcome(hits, call.context.pool)


def _build_source(found: FoundPassage) -> SourceDraft:
    """One source for all passages of a document, with the text of the longest one that was found; in a PDF one for each
    passage, which names its page."""
    if _PAGE.fullmatch(found.heading):
        return SourceDraft(f"{found.title}, {found.heading}", _ref_of(found), "file", text=found.text)
    return SourceDraft(found.title, knowledge_ref(found.path), "file", text=found.text)


def build_outcome(hits: KnowledgeHits, pool: SourcePool, *, notice: str = "") -> ToolOutcome:
    """The result of a search, whose documents become sources, with a row for each passage. `notice` comes last."""
    if not hits.found:
        return ToolOutcome("ok", "\n\n".join(filter(None, ("Nothing was found. Try other words.", notice))))
    try:
        rows = pool.claim([_build_source(found) for found in hits.found])
    except EverturnError as error:
        return ToolOutcome("error", f"The results could not become sources: {error.detail}")
    shown = [_render(row, found) for row, found in zip(rows, hits.found, strict=True)]
    if hits.words_only:
        shown.append(f"Only words were compared, not meanings: {hits.words_only}")
    shown += [notice] if notice else []
    refs = [_ref_of(found) for found in hits.found]
    untrusted = any(found.untrusted for found in hits.found)
    return ToolOutcome("ok", "\n\n".join(shown), data={"refs": refs}, untrusted=untrusted)


def _ref_of(found: FoundPassage) -> str:
    return knowledge_ref(found.path, found.start_line, found.end_line)


def _render(row: Source, found: FoundPassage) -> str:
    under = f", under {escape_line(found.heading)}" if found.heading else ""
    return f"[[S:{row.sid}]] {escape_line(found.title)}{under}\n{escape_line(_ref_of(found))}\n{found.text}"
