"""The exact model input of a round: its manifest, with each text rebuilt from blocks and verified by its hash."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from fastapi import Request
from pydantic import Field, ValidationError

from everturn.core.api_model import ApiModel
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.paging import BadCursor, build_cursor, read_cursor
from everturn.files.model import manifest_key, preamble_key
from everturn.files.objects import Objects
from everturn.models.port import Role
from everturn.timeline.blocks import Block
from everturn.timeline.forms import hash_text, try_rebuild_arguments, try_rebuild_text
from everturn.timeline.manifests import Manifest, ManifestSegment, Preamble
from everturn.turns.ports import Turns
from ingress.errors import absent

MAX_MANIFEST_BYTES = 16_000_000
MAX_PAGE_CHARS = 2_000_000
"""Limit for the texts of one page; the segment that exceeds it is the page's last."""
MAX_ROUND = 1_000_000
_CURSOR = "context"

CacheState = Literal["read", "write", "none", "unknown"]


class SegmentOut(ApiModel):
    """One part of the input.

    `cache` says how the provider's cache can serve it: `read` if the previous round began with the same parts up to a
    cache point, `write` up to this request's last cache point, `none` after it, `unknown` in a turn's first round.
    `text` is null if it can't be rebuilt; `note` then says why.
    """

    index: int
    """The position of the part in the input, from 0."""
    origin: Literal["tools", "system", "block", "media", "tail", "call"]
    """What the segment is: `tools` is a JSON list of declarations, `call` the arguments of a call."""
    ref: str | None
    """The ref of its block; null for parts that are not a block."""
    form: str | None
    """The form in which the blocks are shown: whole, shortened or summarized."""
    chars: int
    """Its length in characters."""
    tokens: int
    """The estimated number of tokens."""
    sha256: str
    """The SHA-256 of its bytes, in hexadecimal."""
    cache_point: bool
    """Whether the cached beginning of the input ends here."""
    cache: CacheState
    """How the provider's cache can serve the part."""
    text: str | None
    """The text of the part; null if it can't be rebuilt."""
    note: str | None = None
    """What the reader should know about it."""
    role: Role | None = None
    """The role of its message; null for tools, and if an older worker sent the request."""
    call_id: str | None = None
    """The call that this is, or whose result it is; null for other parts."""
    tool: str | None = None
    """The name under which the called tool was declared; null for other parts."""


class RoundContextOut(ApiModel):
    """The request of one round; `tokens` are estimates. `next_cursor` leads to more parts and is null at the end."""

    conversation_id: str
    turn_id: str
    round: int
    model: str
    """The model that was called."""
    sent_at: str
    """When it was sent, in ISO 8601 and UTC."""
    max_output_tokens: int
    """How many tokens the model may write."""
    tokens: int
    """The estimated number of tokens."""
    segments_total: int = Field(description="Parts of the whole request.")
    segments: tuple[SegmentOut, ...]
    """The parts of the model's input, in order."""
    next_cursor: str | None


class RoundContexts:
    """Loads round inputs: checks the owner in the rows before it reads an object."""

    def __init__(self, turns: Turns, objects: Objects) -> None:
        self._turns = turns
        self._objects = objects

    async def load(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        number: int,
        *,
        cursor: str | None,
        limit: int,
    ) -> RoundContextOut:
        """One page of a round's input. Raises 404 if it does not belong to the caller or is not stored."""
        start = 0 if cursor is None else _read_start(cursor)
        await self._turns.load_ordinal(principal, conversation_id, turn_id)
        raw = await self._try_object(manifest_key(conversation_id, turn_id, number))
        raw_before = await self._try_object(manifest_key(conversation_id, turn_id, number - 1)) if number > 1 else None
        # A manifest and the texts of a page can have megabytes, so threads read and build them.
        manifest, states = await asyncio.to_thread(_read_manifests, raw, raw_before)
        if manifest is None:
            raise absent("The input of this round is not stored.")
        wanted = manifest.segments[start : start + limit]
        seqs = [seq for part in wanted for seq in (part.seq, part.code_seq) if seq]
        blocks = await self._turns.load_blocks(principal, conversation_id, seqs)
        preamble = None
        if any(part.origin in ("tools", "system") for part in wanted):
            stored_by = manifest.system_turn or turn_id
            key = preamble_key(conversation_id, stored_by, manifest.system_sha256)
            preamble = await self._try_object(key)

        def build() -> RoundContextOut:
            texts = _Texts({block.seq: block for block in blocks}, _read_preamble(preamble))
            segments = _build_page(wanted, states[start:], start, texts)
            end = start + len(segments)
            return RoundContextOut(
                conversation_id=conversation_id,
                turn_id=turn_id,
                round=manifest.round,
                model=manifest.model,
                sent_at=manifest.sent_at,
                max_output_tokens=manifest.max_output_tokens,
                tokens=manifest.tokens,
                segments_total=len(manifest.segments),
                segments=segments,
                next_cursor=build_cursor(_CURSOR, str(end)) if end < len(manifest.segments) else None,
            )

        return await asyncio.to_thread(build)

    async def _try_object(self, key: str) -> bytes | None:
        try:
            return await self._objects.load(key, max_bytes=MAX_MANIFEST_BYTES)
        except NotFound:
            return None


async def round_contexts(request: Request) -> RoundContexts:
    """The service of this application."""
    return cast(RoundContexts, request.app.state.round_contexts)


def _read_manifests(raw: bytes | None, raw_before: bytes | None) -> tuple[Manifest | None, list[CacheState]]:
    """The manifest of a round, and what a cache could do with its parts after the round before."""
    manifest = _try_manifest(raw)
    if manifest is None:
        return None, []
    before = _try_manifest(raw_before)
    return manifest, judge_cache(manifest.segments, before.segments if before else None)


def _try_manifest(raw: bytes | None) -> Manifest | None:
    try:
        return None if raw is None else Manifest.model_validate_json(raw, extra="ignore")
    except ValidationError:
        # Of another version, or damaged: treat it as missing.
        return None


def _read_preamble(raw: bytes | None) -> Preamble:
    """The stored preamble; one without texts if it is missing or damaged."""
    try:
        return Preamble(system="") if raw is None else Preamble.model_validate_json(raw, extra="ignore")
    except ValidationError:
        return Preamble(system="")


def judge_cache(segments: Sequence[ManifestSegment], before: Sequence[ManifestSegment] | None) -> list[CacheState]:
    """Per part, what a prefix cache could do with it, if it last saw the previous request."""
    last_point = _last_point(segments)
    if before is None:
        return ["unknown" if at <= last_point else "none" for at in range(len(segments))]
    same = 0
    while same < min(len(segments), len(before)) and _content(segments[same]) == _content(before[same]):
        same += 1
    read = _last_point(before[:same])
    return ["read" if at <= read else "write" if at <= last_point else "none" for at in range(len(segments))]


def _content(segment: ManifestSegment) -> tuple[str | None, str | None, str]:
    return segment.call_id, segment.tool, segment.sha256


def _last_point(segments: Sequence[ManifestSegment]) -> int:
    return max((at for at, part in enumerate(segments) if part.cache_point), default=-1)


class _Texts:
    """Rebuilds the texts of a page."""

    def __init__(self, blocks: Mapping[int, Block], preamble: Preamble) -> None:
        self._blocks = blocks
        self._preamble = preamble

    def rebuild(self, part: ManifestSegment) -> tuple[str | None, str | None]:
        """The text, or the reason why there is none."""
        match part.origin:
            case "tail":
                return (part.text, None) if part.text is not None else (None, "not kept")
            case "tools" | "system":
                text = self._preamble.tools if part.origin == "tools" else self._preamble.system
                return (text, None) if hash_text(text) == part.sha256 else (None, "not kept")
            case "media":
                return None, "the content of a file, which can be read by its ref"
            case "block" | "call":
                return self._rebuild_block(part)

    def _rebuild_block(self, part: ManifestSegment) -> tuple[str | None, str | None]:
        block = self._blocks.get(part.seq)
        if block is None:
            return None, "the block no longer exists"
        if part.form == "replaced":
            return None, "hidden by react.hide; the block can be read by its ref"
        if part.origin == "call":
            text = try_rebuild_arguments(block, self._blocks.get(part.code_seq or 0), part.sha256)
        else:
            text = try_rebuild_text(block, part.form, part.sha256)
        return (text, None) if text is not None else (None, "it was rendered by a different version")


def _build_page(
    wanted: Sequence[ManifestSegment], states: Sequence[CacheState], start: int, texts: _Texts
) -> tuple[SegmentOut, ...]:
    page: list[SegmentOut] = []
    chars = 0
    for at, (part, state) in enumerate(zip(wanted, states, strict=False), start=start):
        text, note = texts.rebuild(part)
        page.append(_build_segment(at, part, state, text, note))
        chars += len(text or "")
        if chars >= MAX_PAGE_CHARS:
            break
    return tuple(page)


def _build_segment(at: int, part: ManifestSegment, state: CacheState, text: str | None, note: str | None) -> SegmentOut:
    return SegmentOut(
        index=at,
        origin=part.origin,
        ref=part.ref or None,
        form=part.form or None,
        chars=part.chars,
        tokens=part.tokens,
        sha256=part.sha256,
        cache_point=part.cache_point,
        cache=state,
        text=text,
        note=note,
        role=part.role,
        call_id=part.call_id,
        tool=part.tool,
    )


def _read_start(cursor: str) -> int:
    (text,) = read_cursor(cursor, _CURSOR, parts=1)
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise BadCursor()
    return int(text)
