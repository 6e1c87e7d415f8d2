"""The records of what agents asked of models, and of the replies.

A record is gzip of one line of JSON (`ExchangeHead`), the request as its model's server got it, and the bytes of the
reply. It can be read back, and the reply can be played again.
"""

import gzip
import zlib
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from pydantic import BaseModel, ConfigDict

from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.turns.model import UsageEvent

MAX_REPLY_BYTES: Final = 4 * 1024 * 1024
"""Kept of one reply."""
MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
"""Of a record when it is unpacked: the longest request, what its secrets have become, and the reply."""
_LEVEL: Final = 1
"""Of the compression: 36 MiB take about 0.3 s in a thread."""

ExchangeEnd = Literal["complete", "cut", "cancelled", "failed"]
"""A reply is `cut` if its server broke off, or sent more than its limit; `failed` has no reply of the server;
`cancelled` was ended by the agent or by the end of its run."""


class ExchangeHead(BaseModel):
    """What a record says of its request and reply. Sizes are bytes and durations milliseconds since `sent_at`.

    `run` (with a random part for each attempt) and `number` identify the request; `asked` is the model that the agent
    named and `model` the one that it got.
    `status` is None without a reply, of which `kept_bytes` are in the record. `usage` is None if nothing was charged.
    """

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    run: str
    number: int
    path: str
    asked: str
    model: str
    sent_at: str
    status: int | None
    media_type: str
    end: ExchangeEnd
    answered_ms: int | None
    ended_ms: int
    request_bytes: int
    kept_bytes: int
    reply_bytes: int
    usage: UsageEvent | None


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its reply, up to MAX_REPLY_BYTES of it."""

    head: ExchangeHead
    request: bytes = field(repr=False)
    reply: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """In bytes, before compression."""
        return len(self.request) + len(self.reply)


def build_record(exchange: Exchange, redactor: Redactor) -> bytes:
    """The record, without known secrets. Takes time in proportion to the size of the exchange."""
    request = cast("bytes", redactor.redact_value(exchange.request))
    reply = cast("bytes", redactor.redact_value(exchange.reply))
    head = exchange.head.model_copy(update={"request_bytes": len(request), "kept_bytes": len(reply)})
    return gzip.compress(b"\n".join((head.model_dump_json().encode(), request + reply)), _LEVEL, mtime=0)


def read_record(record: bytes) -> Exchange:
    """The exchange of a record. Raises Invalid."""
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        line, _, bodies = unpacker.decompress(record, MAX_RECORD_BYTES).partition(b"\n")
        head = ExchangeHead.model_validate_json(line)
    except (zlib.error, ValueError) as error:
        raise Invalid("The record of a model call can't be read.") from error
    if not unpacker.eof or len(bodies) != head.request_bytes + head.kept_bytes:
        raise Invalid("The record of a model call is incomplete.")
    return Exchange(head, bodies[: head.request_bytes], bodies[head.request_bytes :])
