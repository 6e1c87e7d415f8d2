"""The tools that MCP clients are offered: asking an agent, its answers, search, and files. Each call is one of the
person whose credential the request has."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, cast

from fastapi import Request
from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from everturn.core.errors import NotFound
from everturn.core.ids import ArtifactId, ConversationId, TurnId, is_id
from everturn.core.paging import MAX_CURSOR_CHARS
from everturn.files.model import Artifact
from everturn.memory.search import MAX_LIMIT
from everturn.turns.inbox import Receipt
from ingress.admission.limits import load_request_limits
from ingress.admission.slots import OpenSlots
from ingress.auth.gate import Caller
from ingress.bundles import Bundles
from ingress.chat.schemas import MessageIn, build_caps, check_submission
from ingress.chat.service import NEW, ChatService
from ingress.conversations.schemas import FetchIn
from ingress.conversations.service import ConversationService
from ingress.errors import unprocessable
from ingress.fields import NOT_BLANK, BundleId, problem_of_validation
from ingress.files.service import FileService, Slice
from ingress.mcp.answers import AnswerOut, FileOut, Progress, build_answer, list_files, wait_for_end
from ingress.search import MAX_QUERY_CHARS, SearchIn, SearchService
from ingress.stream.feed import StreamEdge

MAX_WAIT_S: Final = 300
DEFAULT_WAIT_S: Final = 60
MAX_TEXT_CHARS: Final = 50_000
"""Limit of the text of a file that one call returns; `offset` continues."""
MAX_READ_BYTES: Final = 2_000_000
"""Files of more bytes are not read: their text is for a person's download."""
MAX_IMAGE_BYTES: Final = 1_000_000
MAX_TURNS: Final = 20

_Id = Annotated[str, StringConstraints(max_length=80)]
_Wait = Annotated[int, Field(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the answer.")]


class _Params(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListAgents(_Params):
    """List the agents that the person may use. The id of one is the `agent` of ask_agent."""


class AskAgent(_Params):
    """Send a message to an agent of Everturn and wait for its answer.

    Without `conversation_id` a new conversation begins. If the answer takes longer than `wait_s`, the result has the
    status `running` and the ids for get_answer.
    """

    message: str = Field(min_length=1, pattern=NOT_BLANK, description="What to ask or to do.")
    conversation_id: _Id | None = Field(default=None, description="Continue this conversation.")
    agent: BundleId | None = Field(default=None, description="The id of the agent; the default one if absent.")
    wait_s: _Wait = DEFAULT_WAIT_S


class GetAnswer(_Params):
    """Get the answer of a turn, or wait for it. Without `turn_id`, that of the latest turn of the conversation."""

    conversation_id: _Id
    turn_id: _Id | None = None
    wait_s: _Wait = 0


class SearchConversations(_Params):
    """Search the person's earlier conversations by meaning and words. Hits name their conversation and turn."""

    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARS, pattern=NOT_BLANK)
    limit: int = Field(default=10, ge=1, le=MAX_LIMIT)
    conversation_id: _Id | None = Field(default=None, description="Search only this conversation.")
    cursor: str | None = Field(default=None, max_length=MAX_CURSOR_CHARS, description="`next_cursor` of the last page.")


class ListFiles(_Params):
    """List the files of a conversation's latest turns: what the person attached and what the agent made."""

    conversation_id: _Id
    turns: int = Field(default=5, ge=1, le=MAX_TURNS, description="How many of the latest turns.")


class ReadFile(_Params):
    """Read a file of a conversation: its text, or the picture of a small image."""

    artifact_id: _Id
    offset: int = Field(default=0, ge=0, le=MAX_READ_BYTES, description="Characters to skip.")


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `request` is the admitted HTTP request."""

    request: Request
    caller: Caller
    report: Progress


Run = Callable[[Call, Any], Awaitable[CallToolResult]]


async def _list_agents(call: Call, _: ListAgents) -> CallToolResult:
    listed = (await cast(Bundles, call.request.app.state.bundles).load_list(call.caller.principal)).bundles
    agents = [agent.model_dump(mode="json", include={"id", "title", "description", "is_default"}) for agent in listed]
    lines = [f"{agent.id}: {agent.title}. {agent.description}{' (default)' * agent.is_default}" for agent in listed]
    return CallToolResult(content=[TextContent(text="\n".join(lines))], structured_content={"agents": agents})


async def _ask(call: Call, params: AskAgent) -> CallToolResult:
    state, me = call.request.app.state, call.caller.principal
    # The request itself counted as a read.
    await load_request_limits(call.request).admit(call.request, me, write=True)
    submission = await check_submission(
        {"text": params.message, "bundle_id": params.agent}, (), MessageIn, build_caps(state.settings, state.bounds)
    )
    chat = cast(ChatService, state.chat)
    receipt = await chat.accept_message(me, params.conversation_id or NEW, submission, call.request.headers)
    return await _await_answer(call, receipt.conversation_id, _turn_of(receipt), params.wait_s)


def _turn_of(receipt: Receipt) -> TurnId:
    if receipt.turn_id is None:
        raise NotFound("The message waits for a turn that has not begun.")
    return receipt.turn_id


async def _get_answer(call: Call, params: GetAnswer) -> CallToolResult:
    conversation_id = _parse(params.conversation_id, "conv")
    if params.turn_id is not None:
        turn_id = _parse(params.turn_id, "turn")
    else:
        fetched = await _conversations(call).fetch(
            call.caller.principal, FetchIn(conversation_id=conversation_id, limit=1)
        )
        if not fetched.turns:
            raise NotFound("The conversation has no turns.")
        turn_id = fetched.turns[-1].turn_id
    return await _await_answer(call, ConversationId(conversation_id), TurnId(turn_id), params.wait_s)


async def _await_answer(call: Call, conversation_id: ConversationId, turn_id: TurnId, wait_s: int) -> CallToolResult:
    me = call.caller.principal
    turn = await _conversations(call).load_turn(me, conversation_id, turn_id)
    if wait_s and build_answer(conversation_id, turn).status == "running":
        edge = cast(StreamEdge, call.request.app.state.streams)
        await wait_for_end(edge, call.caller, conversation_id, turn_id, wait_s, call.report)
        turn = await _conversations(call).load_turn(me, conversation_id, turn_id)
    answer = build_answer(conversation_id, turn)
    return CallToolResult(
        content=[TextContent(text=_say(answer))],
        structured_content=answer.model_dump(mode="json"),
        is_error=answer.status == "failed",
    )


def _say(answer: AnswerOut) -> str:
    """The answer for a model that reads only the text, with the ids that it needs to continue."""
    files = "\n".join(["Files:", *map(_describe, answer.files)]) if answer.files else ""
    parts = [answer.answer or "", answer.detail, files]
    ids = f"(conversation_id {answer.conversation_id}, turn_id {answer.turn_id}, status {answer.status})"
    return "\n\n".join(filter(None, (*parts, ids)))


def _describe(file: FileOut) -> str:
    return f"- {file.filename} ({file.mime}, {file.size} bytes): artifact_id {file.artifact_id}"


async def _search(call: Call, params: SearchConversations) -> CallToolResult:
    found = await cast(SearchService, call.request.app.state.search).search(
        call.caller.principal,
        SearchIn(query=params.query, limit=params.limit, conversation_id=params.conversation_id, cursor=params.cursor),
    )
    lines = [
        f"{hit.title or 'Untitled'} ({hit.ts}, conversation_id {hit.conversation_id}, turn_id {hit.turn_id}):\n"
        f"{hit.snippet}"
        for hit in found.items
    ]
    return CallToolResult(
        content=[TextContent(text="\n\n".join(lines) or "Nothing was found.")],
        structured_content=found.model_dump(mode="json"),
    )


async def _list_files(call: Call, params: ListFiles) -> CallToolResult:
    fetched = await _conversations(call).fetch(
        call.caller.principal, FetchIn(conversation_id=_parse(params.conversation_id, "conv"), limit=params.turns)
    )
    found = [(turn.turn_id, file) for turn in fetched.turns for file in list_files(turn)]
    return CallToolResult(
        content=[TextContent(text="\n".join(_describe(file) for _, file in found) or "There are no files.")],
        structured_content={"files": [{"turn_id": turn_id, **file.model_dump(mode="json")} for turn_id, file in found]},
    )


async def _read_file(call: Call, params: ReadFile) -> CallToolResult:
    state, me = call.request.app.state, call.caller.principal
    service = cast(FileService, state.files)
    artifact = await service.load(me, ArtifactId(_parse(params.artifact_id, "art")))
    base = artifact.mime.partition(";")[0].strip()
    is_image = base in ("image/png", "image/jpeg", "image/gif", "image/webp")
    if artifact.size > (MAX_IMAGE_BYTES if is_image else MAX_READ_BYTES):
        raise unprocessable(f"The file has {artifact.size} bytes, which is too much to read it here.")
    with cast(OpenSlots, state.downloads).holding(me):
        data = await _load(service, artifact)
    if is_image:
        block: ContentBlock = ImageContent(data=base64.b64encode(data).decode(), mime_type=base)
        return CallToolResult(content=[block])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unprocessable(f"{artifact.filename} ({artifact.mime}) is not a text that can be read here.") from error
    piece = text[params.offset : params.offset + MAX_TEXT_CHARS]
    end = params.offset + len(piece)
    more = (
        f"\n\n(Characters {params.offset} to {end} of {len(text)}. Continue with offset {end}.)"
        if end < len(text)
        else ""
    )
    return CallToolResult(content=[TextContent(text=piece + more)])


async def _load(service: FileService, artifact: Artifact) -> bytes:
    chunks = cast(Any, await service.open(artifact, Slice(0, artifact.size)))
    async with aclosing(chunks):
        return b"".join([chunk async for chunk in chunks])


def _conversations(call: Call) -> ConversationService:
    return cast(ConversationService, call.request.app.state.conversations)


def _parse(text: str, kind: str) -> str:
    if not is_id(text, kind):
        raise NotFound()
    return text


@dataclass(frozen=True, slots=True)
class _Offered:
    params: type[_Params]
    run: Run
    read_only: bool = True


_OFFERED: Final[Mapping[str, _Offered]] = {
    "list_agents": _Offered(ListAgents, _list_agents),
    "ask_agent": _Offered(AskAgent, _ask, read_only=False),
    "get_answer": _Offered(GetAnswer, _get_answer),
    "search_conversations": _Offered(SearchConversations, _search),
    "list_files": _Offered(ListFiles, _list_files),
    "read_file": _Offered(ReadFile, _read_file),
}


@cache
def list_tools() -> Mapping[str, Tool]:
    """The tools by name, always in the same order."""
    return {
        name: Tool(
            name=name,
            description=" ".join((offered.params.__doc__ or "").split()),
            input_schema=_build_schema(offered.params),
            annotations=ToolAnnotations(
                read_only_hint=offered.read_only, destructive_hint=False, open_world_hint=False
            ),
        )
        for name, offered in _OFFERED.items()
    }


def _build_schema(params: type[BaseModel]) -> dict[str, Any]:
    schema = params.model_json_schema()
    schema.pop("description", None)
    return schema


async def run_tool(name: str, arguments: Mapping[str, Any], call: Call) -> CallToolResult | None:
    """The result of a call; None for an unknown tool. Raises problems and errors of the platform."""
    offered = _OFFERED.get(name)
    if offered is None:
        return None
    try:
        params = offered.params.model_validate(dict(arguments))
    except ValidationError as error:
        raise problem_of_validation(error.errors(include_url=False, include_input=False), "arguments") from error
    return await offered.run(call, params)
