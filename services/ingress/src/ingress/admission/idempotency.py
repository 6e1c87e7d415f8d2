"""Idempotency keys: reading the header, and the hash of what was submitted under it."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers

from everturn.ports.inbox import IdempotencyKey
from ingress.errors import malformed

HEADER = "idempotency-key"
_PRINTABLE = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?", re.ASCII)


def try_read_key(headers: Headers) -> str | None:
    """The client's key: 1 to 200 printable ASCII characters, quoted or not; None without the header."""
    values = headers.getlist(HEADER)
    if not values:
        return None
    key = _unquote(values[0].strip())
    if len(values) > 1 or not _PRINTABLE.fullmatch(key):
        raise malformed("Idempotency-Key must be one string of 1 to 200 printable ASCII characters.")
    return key


def build_key(headers: Headers, *, route: str, content: Mapping[str, Any]) -> IdempotencyKey | None:
    """The key with the hash of the canonical content, in which files stand by their sha256."""
    key = try_read_key(headers)
    if key is None:
        return None
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return IdempotencyKey(route, key, hashlib.sha256(canonical.encode()).hexdigest())


def _unquote(value: str) -> str:
    # RFC 8941 strings escape only the quote and the backslash.
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r'\\(["\\])', r"\1", value[1:-1])
    return value
