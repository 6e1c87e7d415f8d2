"""The manifest of a request: the origin, form, length and caching of each part.

It contains only the text that is in no block: the tail. The system text is stored once for a turn.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from chat_proc.timeline.view import VisibleBlock
from everturn.models.port import MediaPart, ModelRequest, Part, TextPart
from everturn.models.tokens import CharsPerToken, estimate_media_tokens
from everturn.timeline.forms import hash_text
from everturn.timeline.manifests import Manifest, ManifestSegment, Preamble

_Origin = Literal["system", "block", "media", "tail"]


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request as sent. `items` are those of the view, `starts` the index of the first part of each."""

    request: ModelRequest
    items: tuple[VisibleBlock, ...]
    starts: tuple[int, ...]
    turn_id: str
    round: int
    model: str
    sent_at: str
    ratio: CharsPerToken


def build_manifest(record: RequestRecord) -> bytes:
    """Build JSON, equal for equal requests. Tokens are estimates by the ratio known at that time."""
    segments = tuple(_segments(record))
    manifest = Manifest(
        version=1,
        turn_id=record.turn_id,
        round=record.round,
        model=record.model,
        sent_at=record.sent_at,
        max_output_tokens=record.request.max_output_tokens,
        tokens=sum(segment.tokens for segment in segments),
        segments=segments,
    )
    return manifest.model_dump_json(exclude_none=True).encode()


def build_preamble(system_prompt: str) -> bytes:
    """JSON of the common beginning of all requests of a turn."""
    return Preamble(system=system_prompt).model_dump_json().encode()


def _segments(record: RequestRecord) -> Iterator[ManifestSegment]:
    for message in record.request.messages:
        if message.role == "system":
            yield from (_segment(part, "system", None, record.ratio) for part in message.parts)
        else:
            yield from _user_segments(message.parts, record)


def _user_segments(parts: Sequence[Part], record: RequestRecord) -> Iterator[ManifestSegment]:
    item_at = dict(zip(record.starts, record.items, strict=True))
    item: VisibleBlock | None = None
    for at, part in enumerate(parts):
        if isinstance(part, TextPart):
            item = item_at.get(at)
        yield _segment(part, "tail" if item is None else "block", item, record.ratio)


def _segment(part: Part, origin: _Origin, item: VisibleBlock | None, ratio: CharsPerToken) -> ManifestSegment:
    ref, seq, form = (item.block.ref, item.block.seq, item.form.value) if item is not None else ("", 0, "")
    match part:
        case TextPart(text=text, cache_point=cache_point):
            return ManifestSegment(
                origin=origin,
                ref=ref,
                seq=seq,
                form=form,
                chars=len(text),
                tokens=ratio.tokens_for(len(text)),
                sha256=hash_text(text),
                cache_point=cache_point,
                text=text.encode(errors="replace").decode() if origin == "tail" else None,
            )
        case MediaPart(mime=mime, data=data):
            return ManifestSegment(
                origin="media",
                ref=ref,
                seq=seq,
                form=form,
                chars=0,
                tokens=estimate_media_tokens(mime, len(data)),
                sha256=hashlib.sha256(data).hexdigest(),
                cache_point=False,
            )
