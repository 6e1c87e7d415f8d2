"""The manifest of a request: what each part of it comes from, in which form, how long, cached or not; no text of it."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from chat_proc.timeline.view import VisibleBlock
from everturn.model.llm.prompts import MediaPart, ModelRequest, Part, TextPart
from everturn.model.llm.tokens import CharsPerToken, estimate_media_tokens


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of the request. `origin` is `system`, `block`, `media` or `tail`; a block's media follow its text."""

    origin: str
    ref: str
    seq: int
    form: str
    chars: int
    tokens: int
    sha256: str
    cache_point: bool


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request as it was sent. `items` are those of the view, `starts` the part that each begins with."""

    request: ModelRequest
    items: tuple[VisibleBlock, ...]
    starts: tuple[int, ...]
    turn_id: str
    round: int
    model: str
    sent_at: str
    ratio: CharsPerToken


def build_manifest(record: RequestRecord) -> bytes:
    """JSON; the same for the same request. Tokens are estimates by the ratio as it was known then."""
    segments = list(_segments(record))
    head = {
        "version": 1,
        "turn_id": record.turn_id,
        "round": record.round,
        "model": record.model,
        "sent_at": record.sent_at,
        "max_output_tokens": record.request.max_output_tokens,
        "tokens": sum(segment.tokens for segment in segments),
    }
    body = head | {"segments": [asdict(segment) for segment in segments]}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _segments(record: RequestRecord) -> Iterator[Segment]:
    for message in record.request.messages:
        if message.role == "system":
            yield from (_segment(part, "system", None, record.ratio) for part in message.parts)
        else:
            yield from _user_segments(message.parts, record)


def _user_segments(parts: Sequence[Part], record: RequestRecord) -> Iterator[Segment]:
    item_at = dict(zip(record.starts, record.items, strict=True))
    item: VisibleBlock | None = None
    for at, part in enumerate(parts):
        if isinstance(part, TextPart):
            item = item_at.get(at)
        yield _segment(part, "tail" if item is None else "block", item, record.ratio)


def _segment(part: Part, origin: str, item: VisibleBlock | None, ratio: CharsPerToken) -> Segment:
    ref, seq, form = (item.block.ref, item.block.seq, item.form.value) if item is not None else ("", 0, "")
    match part:
        case TextPart(text=text, cache_point=cache_point):
            digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            return Segment(origin, ref, seq, form, len(text), ratio.tokens_for(len(text)), digest, cache_point)
        case MediaPart(mime=mime, data=data):
            tokens = estimate_media_tokens(mime, len(data))
            return Segment("media", ref, seq, form, 0, tokens, hashlib.sha256(data).hexdigest(), False)
