"""What the workflow of an author gets to know: the message that it answers, files, and texts of the person's
conversations. All of it is read for the person of the turn."""

import asyncio
import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from chat_proc.agent.authored.port import Files
from chat_proc.agent.authored.requests import Request, explain_request
from chat_proc.agent.kit import TurnKit, TurnLimits
from chat_proc.agent.tool_calls import LiveCall
from chat_proc.catalog.tool import ToolCall, ToolContext
from chat_proc.timeline.artifacts import fold_artifacts
from chat_proc.turn.leased import LeasedTurn
from everturn.core.errors import Invalid
from everturn.core.ids import CallId
from everturn.core.loops import guarded
from everturn.files.model import Artifact
from everturn.memory.search import MAX_LIMIT
from everturn.timeline.blocks import Block, CompletionBody, PromptBody
from everturn_sdk.protocol import CallContext, Question, RunFile, RunPayload

MAX_URLS: Final = 500
"""Files whose addresses a workflow knows, the newest ones."""
MAX_TURNS: Final = 100
MAX_BLOCKS: Final = 500
MAX_TEXT_CHARS: Final = 4_000
"""Limits of what a workflow reads of its conversation at once."""
READS: Final[frozenset[Question]] = frozenset({"search", "fetch_ctx", "turns", "timeline", "files", "load_file"})
"""What is answered at once, beside other requests."""
_SEARCH: Final = "react.memsearch"
_READ: Final = "react.read"


def build_payload(turn: LeasedTurn) -> RunPayload:
    """The message that the turn answers; of a turn that events began, their texts."""
    request = turn.turn.request
    texts = [request.text, *(event.text for event in request.events)]
    files = [*request.attachments, *(file for event in request.events for file in event.attachments)]
    known = list(fold_artifacts(turn.blocks).values())[-MAX_URLS:]
    return RunPayload(
        text="\n\n".join(filter(None, texts)),
        attachments=tuple(RunFile.model_validate(each) for each in describe_files(turn, files)),
        urls={each["ref"]: each["url"] for each in describe_files(turn, [*known, *files])},
    )


def build_call_context(turn: LeasedTurn) -> CallContext:
    principal = turn.lease.principal
    return CallContext(
        call_id="",
        tenant=principal.tenant,
        project=principal.project,
        user_id=principal.user_id,
        roles=tuple(sorted(role.value for role in principal.roles)),
        conversation_id=turn.lease.conversation_id,
        turn_id=turn.turn_id,
        round=turn.progress.last_round,
        now=turn.now(),
    )


def describe_files(turn: LeasedTurn, files: Iterable[Artifact]) -> list[dict[str, Any]]:
    """The fields of RunFile for each file."""
    return [
        {"ref": view.ref, "filename": view.filename, "mime": view.mime, "size": view.size, "url": view.url}
        for view in turn.show_files(tuple(files))
    ]


def build_tool_context(turn: LeasedTurn, number: int, blocks: Sequence[Block], limits: TurnLimits) -> ToolContext:
    """Where a workflow uses a tool or stores a file: in this round, with these blocks."""
    return ToolContext(
        principal=turn.lease.principal,
        conversation_id=turn.lease.conversation_id,
        turn_id=turn.turn_id,
        round=number,
        blocks=blocks,
        now=turn.now(),
        pool=turn.pool,
        live=LiveCall(turn, number, limits),
        earlier=turn.call_context.earlier,
        skills=turn.skills,
    )


class _SearchRequest(Request):
    query: str = Field(min_length=1, max_length=2_000)
    kind: Literal["user", "assistant", "attachment", "summary"] | None
    limit: int = Field(ge=1, le=MAX_LIMIT)


class _FetchRequest(Request):
    refs: tuple[str, ...] = Field(min_length=1, max_length=20)


class _TurnsRequest(Request):
    limit: int = Field(ge=1, le=MAX_TURNS)


class _TimelineRequest(Request):
    turn_id: str | None


class _FileRequest(Request):
    ref: str


class ContextRequests:
    """Answers what a workflow asks about conversations, with the tools that its agent has for it, and about its own
    conversation, from its blocks."""

    def __init__(self, kit: TurnKit, turn: LeasedTurn, files: Files) -> None:
        self._catalog = kit.catalog
        self._limits = kit.limits
        self._turn = turn
        self._files = files

    async def answer(self, what: Question, arguments: Mapping[str, Any]) -> object:
        """Raises Invalid."""
        try:
            match what:
                case "fetch_ctx":
                    return await self._call(_READ, {"paths": list(_FetchRequest.model_validate(arguments).refs)})
                case "turns":
                    return self._list_turns(_TurnsRequest.model_validate(arguments).limit)
                case "timeline":
                    return self._list_blocks(_TimelineRequest.model_validate(arguments).turn_id)
                case "files":
                    known = list(fold_artifacts(self._turn.blocks).values())[-MAX_URLS:]
                    return describe_files(self._turn, known)
                case "load_file":
                    return await self._load_file(_FileRequest.model_validate(arguments).ref)
                case _:
                    wanted = _SearchRequest.model_validate(arguments)
        except ValidationError as error:
            raise Invalid(explain_request(error)) from error
        given = {"query": wanted.query, "top_k": wanted.limit, "scope": "user"}
        found = await self._call(_SEARCH, given if wanted.kind is None else {**given, "targets": [wanted.kind]})
        # One line about the search, then one of JSON for each hit.
        return [json.loads(line) for line in found.splitlines()[1:] if line.startswith("{")]

    def _list_turns(self, limit: int) -> list[dict[str, Any]]:
        turns: dict[str, dict[str, Any]] = {}
        for block in self._turn.blocks:
            turn = turns.setdefault(block.turn_id, {"turn_id": block.turn_id, "text": "", "answer": None})
            match block.body:
                case PromptBody(text=text):
                    turn["text"] = text[:MAX_TEXT_CHARS]
                case CompletionBody(text=text):
                    turn["answer"] = text[:MAX_TEXT_CHARS]
                case _:
                    """Not shown."""
        return list(turns.values())[-limit:]

    def _list_blocks(self, turn_id: str | None) -> list[dict[str, Any]]:
        wanted = turn_id or self._turn.turn_id
        blocks = [block for block in self._turn.blocks if block.turn_id == wanted][-MAX_BLOCKS:]
        return [
            {
                "ref": block.ref,
                "type": block.type_name,
                "round": block.round,
                "ts": block.ts,
                "text": str(getattr(block.body, "text", ""))[:MAX_TEXT_CHARS],
            }
            for block in blocks
        ]

    async def _load_file(self, ref: str) -> str:
        if (artifact := fold_artifacts(self._turn.blocks).get(ref)) is None:
            raise Invalid(f"The conversation has no file {ref[:200]!r}.")
        content = await self._files.load(artifact)
        return await asyncio.to_thread(lambda: base64.b64encode(content).decode())

    async def _call(self, tool_id: str, arguments: Mapping[str, Any]) -> str:
        turn = self._turn
        params = self._catalog.check_params(tool_id, arguments)
        number = turn.progress.last_round
        # The workflow has not seen the timeline: what it asks for is read from storage.
        context = build_tool_context(turn, number, (), self._limits)
        with guarded("workflow_request", health=None, tool_id=tool_id) as guard:
            async with asyncio.timeout(self._catalog.spec(tool_id).timeout_s):
                outcome = await self._catalog.run(tool_id, ToolCall(CallId(""), params, None, context))
            if outcome.status == "ok":
                return outcome.text
        raise Invalid(outcome.text if guard.error is None else "It could not be read. The worker's log has the reason.")
