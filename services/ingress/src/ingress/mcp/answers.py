"""Waiting for the answer of a turn, with a line for each step, and the answer as an MCP client gets it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Literal

import orjson
from pydantic import Field

from everturn.core.api_model import ApiModel
from everturn.core.ids import ConversationId, TurnId
from everturn.events.views import FileView, TurnView
from ingress.auth.callers import Caller
from ingress.stream.feed import StreamEdge

Progress = Callable[[str], Awaitable[None]]
MAX_PROGRESS_CHARS: Final = 200
MAX_FILES: Final = 200

Status = Literal["answered", "running", "needs_approval", "failed", "stopped"]


class FileOut(ApiModel):
    """A file of a conversation. `read_file` returns the text of one, by its `artifact_id`."""

    artifact_id: str
    filename: str
    mime: str
    size: int
    """In bytes."""
    made_by: Literal["agent", "user"]


class AnswerOut(ApiModel):
    """An answer, or why there is none yet. While it is `running`, call get_answer with the same ids."""

    conversation_id: str
    turn_id: str
    status: Status
    answer: str | None = None
    files: tuple[FileOut, ...] = Field(default=(), max_length=MAX_FILES)
    detail: str = ""


async def wait_for_end(
    edge: StreamEdge, caller: Caller, conversation_id: ConversationId, turn_id: TurnId, wait_s: float, report: Progress
) -> None:
    """Return when the turn has ended or waits for a person, or after `wait_s`. Counts as an open event stream.

    Raises NotFound, and problems for the limits of streams.
    """
    with edge.slots.until_handed_over(caller.principal):
        client = await edge.hub.open(caller.principal, conversation_id, None, caller.expires_at)
    try:
        async with asyncio.timeout(wait_s), aclosing(edge.follow(client, caller, "steps", None)) as chunks:
            async for name, data in _read_frames(chunks):
                if data.get("turn_id") not in (turn_id, None):
                    continue
                if name == "done" or (name == "approval" and data.get("state") == "pending"):
                    return
                if line := _describe(name, data):
                    await report(line)
    except TimeoutError:
        return
    finally:
        edge.close(client)


async def _read_frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    async for chunk in chunks:
        for frame in chunk.split(b"\n\n"):
            fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
            if b"event" in fields and b"data" in fields:
                yield fields[b"event"].decode(), orjson.loads(fields[b"data"])


def _describe(name: str, data: dict[str, Any]) -> str:
    match name, data:
        case "step", {"type": "thinking", "status": "start"}:
            return "Thinking"
        case "step", {"type": "iteration", "status": "start", "tool_name": str(tool)}:
            return f"Calling {tool}"[:MAX_PROGRESS_CHARS]
        case "step", {"type": "answer"}:
            return "Writing the answer"
        case "phase", {"phase": "queued", "position": int(position)}:
            return f"Waiting behind {position} others"
        case _:
            return ""


def build_answer(conversation_id: str, turn: TurnView) -> AnswerOut:
    """The state of a turn."""
    status, detail = _find_status(turn)
    return AnswerOut(
        conversation_id=conversation_id,
        turn_id=turn.turn_id,
        status=status,
        answer=turn.answer,
        files=list_files(turn),
        detail=detail,
    )


def _find_status(turn: TurnView) -> tuple[Status, str]:
    if turn.error is not None:
        return "failed", turn.error.detail or turn.error.title
    match turn.status:
        case "queued" | "running":
            return "running", "The agent has not finished. Call get_answer with the same ids to wait for it."
        case "waiting":
            asked = ", ".join(approval.tool_id for approval in turn.approvals if approval.state == "pending")
            return "needs_approval", f"A person has to approve a call of {asked or 'a tool'} in Everturn first."
        case "completed":
            return "answered", "" if turn.cut_reason is None else f"The answer is incomplete: {turn.cut_reason}."
        case _:
            return "stopped", f"The turn ended without a complete answer: {turn.status}."


def list_files(turn: TurnView) -> tuple[FileOut, ...]:
    """The files of a turn that its person sees."""
    made = [_build_file(file, "agent") for file in turn.files if file.visibility == "external"]
    return (*(_build_file(file, "user") for file in turn.attachments), *made)[:MAX_FILES]


def _build_file(file: FileView, made_by: Literal["agent", "user"]) -> FileOut:
    return FileOut(
        artifact_id=file.artifact_id, filename=file.filename, mime=file.mime, size=file.size, made_by=made_by
    )
