"""Frames of an AWS event stream, as Amazon Bedrock sends them."""

import json
from base64 import b64encode
from binascii import crc32
from typing import Any

from helpers.provider import Answer

STREAM = {"content-type": "application/vnd.amazon.eventstream"}


def encode_frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One frame: lengths and their checksum, headers with texts as values, the payload, and the checksum of all."""
    encoded = b"".join(
        len(name).to_bytes(1) + name.encode() + b"\x07" + len(value).to_bytes(2) + value.encode()
        for name, value in headers.items()
    )
    lengths = (12 + len(encoded) + len(payload) + 4).to_bytes(4) + len(encoded).to_bytes(4)
    begin = lengths + crc32(lengths).to_bytes(4) + encoded + payload
    return begin + crc32(begin).to_bytes(4)


def encode_chunk(event: dict[str, Any]) -> bytes:
    """An event of the Messages API; `p` is padding that Bedrock adds."""
    payload = json.dumps({"bytes": b64encode(json.dumps(event).encode()).decode(), "p": "abcdef"}).encode()
    kinds = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return encode_frame(kinds, payload)


def encode_exception(kind: str, message: str) -> bytes:
    """An error inside the stream."""
    kinds = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return encode_frame(kinds, json.dumps({"message": message}).encode())


def build_answer(*frames: bytes, **more: Any) -> Answer:
    """A stream of these frames."""
    return Answer(list(frames), headers=STREAM, **more)
