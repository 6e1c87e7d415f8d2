"""`react.search_collections`: finds passages in the collections of a person, and makes the documents sources."""

from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import ToolCall, ToolOutcome, ToolSpec
from chat_proc.knowledge.collections import CollectionReader
from chat_proc.tools.knowledge.search_knowledge import MAX_QUERY_CHARS, build_outcome
from everturn.core.errors import NotFound, Unavailable
from everturn.knowledge.store import MAX_RESULTS
from everturn.turns.model import Effect

SEARCH_COLLECTIONS_TOOL = "react.search_collections"
MAX_TITLE_CHARS = 300


class SearchCollectionsParams(BaseModel):
    """What to look for, in one collection or in all, and how many passages at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARS)
    collection: str = Field(default="", max_length=MAX_TITLE_CHARS)
    limit: int = Field(default=5, ge=1, le=MAX_RESULTS)


class SearchCollectionsTool:
    """Offered to all agents, unless the operator switches collections off."""

    def __init__(self, collections: CollectionReader) -> None:
        self._collections = collections
        self.spec = ToolSpec(
            tool_id=SEARCH_COLLECTIONS_TOOL,
            summary="Search the documents that the person keeps in collections; what is found becomes a source.",
            guide=files("chat_proc.tools.knowledge").joinpath("search_collections.md").read_text(encoding="utf-8"),
            params=SearchCollectionsParams,
            effect=Effect.PURE,
            strategy="exploration",
            result_chars=2 * MAX_RESULTS * 1_000,
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = SearchCollectionsParams.model_validate(call.params)
        principal = call.context.principal
        try:
            found = await self._collections.search(principal, params.query, params.collection, params.limit)
        except (NotFound, Unavailable) as error:
            return ToolOutcome("error", f"Nothing was searched: {error.detail or error}.")
        waiting = f"Documents that are not indexed yet and were not searched: {found.waiting}." if found.waiting else ""
        return build_outcome(found.hits, call.context.pool, notice=waiting)
