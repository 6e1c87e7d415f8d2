"""Builds timelines for tests: chained blocks with the refs and authors that the runtime gives them."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Literal

from everturn.core import refs
from everturn.core.ids import ArtifactId, CallId, SignalId, TurnId
from everturn.files.model import Artifact, ArtifactKind
from everturn.timeline.blocks import (
    GENESIS_HASH,
    AttachmentBody,
    Block,
    BlockDraft,
    BlockType,
    Body,
    CompletionBody,
    PromptBody,
    RoundStartBody,
    SignalBody,
    ThinkingBody,
    ToolCallBody,
    ToolCodeBody,
    ToolResultBody,
    TurnHeaderBody,
    chain_blocks,
    link_hash,
)

NOW = "2026-03-01T12:00:00.000Z"


class TimelineBuilder:
    """Appends one block at a time; `blocks` is the timeline so far."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.turn_id = TurnId("")
        self.round = 0

    def start_turn(self, turn_id: str, text: str, *attachments: Artifact) -> None:
        """Header, prompt and attachments of a turn."""
        self.turn_id, self.round = TurnId(turn_id), 0
        header = TurnHeaderBody(ordinal=len({block.turn_id for block in self.blocks}) + 1)
        self.add(BlockType.TURN_HEADER, refs.round_ref(turn_id, 0, "header"), header)
        self.add(BlockType.USER_PROMPT, refs.prompt_ref(turn_id), PromptBody(text=text))
        for artifact in attachments:
            self.add(BlockType.ATTACHMENT_META, artifact.ref, AttachmentBody(artifact=artifact))

    def start_round(self) -> None:
        self.round += 1
        ref = refs.round_ref(self.turn_id, self.round, "start")
        self.add(BlockType.ROUND_START, ref, RoundStartBody(limit=15))

    def think(self, text: str) -> None:
        ref = refs.round_ref(self.turn_id, self.round, "thinking.0")
        self.add(BlockType.THINKING, ref, ThinkingBody(text=text))

    def call(self, call_id: str, tool_id: str, params: dict[str, Any], *, code: str | None = None) -> None:
        call = CallId(call_id)
        if code is not None:
            code_ref = refs.round_ref(self.turn_id, self.round, "code")
            self.add(BlockType.TOOL_CODE, code_ref, ToolCodeBody(text=code), call_id=call)
        body = ToolCallBody(tool_id=tool_id, params=params)
        self.add(BlockType.TOOL_CALL, refs.call_ref(self.turn_id, call_id), body, call_id=call)

    def result(
        self,
        call_id: str,
        tool_id: str,
        text: str,
        *artifacts: Artifact,
        data: dict[str, Any] | None = None,
        status: Literal["ok", "error", "ambiguous", "cancelled"] = "ok",
    ) -> None:
        body = ToolResultBody(tool_id=tool_id, status=status, text=text, artifacts=artifacts, data=data)
        self.add(BlockType.TOOL_RESULT, refs.result_ref(self.turn_id, call_id), body, call_id=CallId(call_id))

    def say(self, kind: Literal["followup", "steer"], signal_id: str, text: str, *attachments: Artifact) -> None:
        body = SignalBody(signal_id=SignalId(signal_id), text=text, attachments=attachments)
        block_type = BlockType.USER_FOLLOWUP if kind == "followup" else BlockType.USER_STEER
        self.add(block_type, refs.external_ref(self.turn_id, kind, signal_id), body)

    def answer(self, text: str, n: int = 1) -> None:
        self.add(BlockType.COMPLETION, refs.completion_ref(self.turn_id, n), CompletionBody(text=text))

    def add(self, kind: BlockType, ref: str, body: Body, *, call_id: CallId | None = None) -> Block:
        """Append any block to the current turn and round."""
        draft = BlockDraft(self.turn_id, self.round, kind, ref, body, NOW, call_id=call_id)
        last_hash = self.blocks[-1].hash if self.blocks else GENESIS_HASH
        self.blocks.extend(chain_blocks([draft], next_seq=len(self.blocks) + 1, last_hash=last_hash))
        return self.blocks[-1]


def build_file(
    turn_id: str, name: str, data: bytes, *, mime: str = "text/plain", kind: ArtifactKind = ArtifactKind.ATTACHMENT
) -> Artifact:
    """A stored file of conversation `conv_1`, as the platform describes it. `name` can be a path for produced files."""
    digest = sha256(data).hexdigest()
    folder = {ArtifactKind.ATTACHMENT: "attachments", ArtifactKind.FILE: "files", ArtifactKind.OUTPUT: "outputs"}[kind]
    make_ref = {
        ArtifactKind.ATTACHMENT: refs.AttachmentRef,
        ArtifactKind.FILE: refs.FileRef,
        ArtifactKind.OUTPUT: refs.OutputRef,
    }[kind]
    return Artifact(
        id=ArtifactId(f"art_{digest[:8]}"),
        turn_id=TurnId(turn_id),
        ref=str(make_ref(turn_id, name)),
        rn=f"ef:t:p:chatbot:upload:u:conv_1:{turn_id}:{kind.value}:{turn_id}/{folder}/{name}",
        kind=kind,
        filename=name.rsplit("/", 1)[-1],
        path=f"{turn_id}/{folder}/{name}",
        mime=mime,
        size=len(data),
        sha256=digest,
        object_key=f"conv_1/{digest}",
        visibility="external",
        verdict="not scanned",
    )


def first_broken_link(blocks: Iterable[Block], *, last_hash: str = GENESIS_HASH) -> int | None:
    """The seq of the first block whose hash does not follow from the previous block; None when the chain is valid."""
    for block in blocks:
        last_hash = link_hash(
            last_hash,
            seq=block.seq,
            turn_id=block.turn_id,
            round=block.round,
            type=block.type_name,
            ref=block.ref,
            call_id=block.call_id,
            ts=block.ts,
            body=block.body_json,
        )
        if block.hash != last_hash:
            return block.seq
    return None
