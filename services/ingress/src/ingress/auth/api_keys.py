"""API keys: their format, and how a secret is compared with the stored hash.

`evk_<id>_<secret>`: 16 hexadecimal digits that identify the row, and 256 random bits. Those can't be guessed, so
storing one sha256 is enough; slow hashes are for passwords, which people choose.
"""

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

PREFIX = "evk_"
_KEY = re.compile(r"evk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
_NOBODY = "0" * 64


@dataclass(frozen=True, slots=True)
class KeyText:
    """A parsed key, without its secret."""

    key_id: str
    secret_hash: str


def build_key_text(entropy: Callable[[int], bytes] = os.urandom) -> tuple[str, KeyText]:
    """Create a key: the text that is shown once, and what is stored."""
    key_id = entropy(8).hex()
    secret = base64.urlsafe_b64encode(entropy(32)).decode().rstrip("=")
    return f"{PREFIX}{key_id}_{secret}", KeyText(key_id, _hash(secret))


def try_read_key_text(text: str) -> KeyText | None:
    """The key's id and the hash of its secret; None for a text that is not an API key."""
    match = _KEY.fullmatch(text)
    return KeyText(match.group(1), _hash(match.group(2))) if match else None


def is_secret_of(presented: KeyText, kept_hash: str | None) -> bool:
    """Whether the secret matches the stored hash. Checking an unknown key takes as long as a wrong secret."""
    return hmac.compare_digest(presented.secret_hash, kept_hash or _NOBODY) and kept_hash is not None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
