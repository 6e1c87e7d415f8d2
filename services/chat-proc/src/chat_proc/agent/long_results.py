"""Long results of tools: the text goes whole to the object store, and the block holds a preview of it."""

import asyncio
import hashlib
from dataclasses import dataclass
from datetime import datetime

import structlog

from chat_proc.agent.open_turn import OpenTurn
from everturn.errors import EverturnError
from everturn.model.artifacts import Artifact, ArtifactKind, Rn, object_key
from everturn.model.block_bodies import StoredText, ToolResultBody
from everturn.model.ids import ArtifactId, CallId, make_id
from everturn.model.refs import result_ref
from everturn.ports.objects import Objects
from everturn.timeline.rendering.preview import build_preview

_log = structlog.get_logger(__name__)

MAX_STORED_BYTES = 10 * 1024 * 1024
"""Of one result; what is beyond is lost, and the preview says so."""
SAVE_TIMEOUT_S = 30.0
_UNKEPT = "\n(The rest could not be stored and is lost: call the tool again for a smaller part.)"


@dataclass(frozen=True, slots=True)
class KeptResult:
    """The body for the timeline, and the row that its object needs, if it has one."""

    body: ToolResultBody
    rows: tuple[Artifact, ...] = ()


class ResultKeeper:
    """Stores what is longer than a tool's result may be.

    The object's key is the hash of its content, and its row is written by the commit that writes the block. When that
    commit is refused, because another worker took over, a repeated call that gives the same finds the object there; an
    object that no row names goes when the conversation is erased, like the files of a refused commit.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def keep(self, turn: OpenTurn, call_id: CallId, body: ToolResultBody, cap: int) -> KeptResult:
        """The same result with a text of about `cap` characters at most."""
        if len(body.text) <= cap:
            return KeptResult(body)
        ref = result_ref(turn.turn_id, call_id)
        data = _encode(body.text)
        kept = data.decode()
        preview = build_preview(kept, ref, cap) + _tell_loss(body.text, kept)
        row = _build_row(turn, call_id, data)
        try:
            async with asyncio.timeout(SAVE_TIMEOUT_S):
                await self._objects.save(row.object_key, data)
        except (EverturnError, TimeoutError) as error:
            # The tool has done its work: its result is worth more in part than not at all.
            _log.warning("result_not_stored", call_id=call_id, error=str(error))
            return KeptResult(body.model_copy(update={"text": body.text[:cap] + _UNKEPT}))
        whole = StoredText(object_key=row.object_key, sha256=row.sha256, chars=len(kept), bytes=len(data))
        return KeptResult(body.model_copy(update={"text": preview, "whole": whole}), (row,))


def _encode(text: str) -> bytes:
    """At most MAX_STORED_BYTES of UTF-8, cut between characters. A lone surrogate becomes a question mark."""
    data = text.encode("utf-8", errors="replace")
    if len(data) <= MAX_STORED_BYTES:
        return data
    return data[:MAX_STORED_BYTES].decode("utf-8", errors="ignore").encode()


def _tell_loss(text: str, kept: str) -> str:
    if len(kept) == len(text):
        return ""
    return f"\n(The result had {len(text)} characters. Only the first {len(kept)} are stored; the others are lost.)"


def _build_row(turn: OpenTurn, call_id: CallId, data: bytes) -> Artifact:
    who, conversation_id = turn.lease.principal, turn.lease.conversation_id
    digest = hashlib.sha256(data)
    born_ms = int(datetime.fromisoformat(turn.now()).timestamp() * 1000)
    entropy = hashlib.sha256(f"{call_id}\nresult".encode()).digest()[:10]
    rn = Rn(
        tenant=who.tenant,
        project=who.project,
        stage="agent",
        user_id=who.user_id,
        conversation_id=conversation_id,
        turn_id=turn.turn_id,
        role=ArtifactKind.RESULT.value,
        path=f"{call_id}.txt",
    )
    return Artifact(
        id=ArtifactId(make_id("art", born_ms, entropy)),
        turn_id=turn.turn_id,
        ref=result_ref(turn.turn_id, call_id),
        rn=str(rn),
        kind=ArtifactKind.RESULT,
        filename=f"{call_id}.txt",
        path=f"{turn.turn_id}/results/{call_id}.txt",
        mime="text/plain",
        size=len(data),
        sha256=digest.hexdigest(),
        object_key=object_key(conversation_id, digest.hexdigest()),
        visibility="internal",
        verdict="not scanned",
    )
