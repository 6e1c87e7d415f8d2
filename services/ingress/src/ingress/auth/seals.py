"""Seals: small values that this platform hands out and knows again, so that nothing has to be stored for them.

A sealed text is `<prefix><payload>.<mac>`: JSON in base64url, and an HMAC-SHA256 over prefix and payload under a
key of its own for each purpose, derived from one secret that all nodes share.
"""

import base64
import binascii
import hmac
import json
from typing import Any, Literal, cast

MAX_SEALED_CHARS = 2048
MIN_SECRET_BYTES = 32

Purpose = Literal["evt_", "evg_"]
"""The prefix tells what a sealed text is for: `evt_` opens an event stream, `evg_` is a guest."""


class Seals:
    """Makes and checks sealed values. It never shows its keys."""

    def __init__(self, secret: bytes) -> None:
        """Raises ValueError for a secret with less than 256 bits."""
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(f"A secret for seals needs at least {MIN_SECRET_BYTES} bytes.")
        self._keys = {purpose: _derive(secret, purpose) for purpose in ("evt_", "evg_")}

    def build(self, purpose: Purpose, value: dict[str, Any]) -> str:
        """The sealed text of a JSON value."""
        plain = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        payload = base64.urlsafe_b64encode(plain).decode().rstrip("=")
        return f"{purpose}{payload}.{self._sign(purpose, payload)}"

    def try_read(self, purpose: Purpose, sealed: str) -> dict[str, Any] | None:
        """The value; None for a text that was not sealed here, not for this purpose, or was changed."""
        if not sealed.startswith(purpose) or len(sealed) > MAX_SEALED_CHARS or not sealed.isascii():
            return None
        payload, dot, mac = sealed[len(purpose) :].partition(".")
        if not dot or not hmac.compare_digest(mac, self._sign(purpose, payload)):
            return None
        try:
            value = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (binascii.Error, ValueError):
            return None
        return cast(dict[str, Any], value) if isinstance(value, dict) else None

    def _sign(self, purpose: Purpose, payload: str) -> str:
        mac = hmac.digest(self._keys[purpose], f"{purpose}{payload}".encode(), "sha256")
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def _derive(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, f"everturn seal {purpose}".encode(), "sha256")
