"""The issuer's key set: fetched from one address only, kept, and fetched again when keys rotate."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, cast

import jwt
import structlog

from ingress.errors import unauthorized, unavailable

FRESH_S = 300.0
"""After this a key set is fetched again when somebody needs it; a key that was withdrawn is refused from then on."""
STALE_S = 3600.0
"""For so long a key set is used while the issuer does not answer."""
PAUSE_S = 30.0
"""Between two fetches, however many unknown keys are named."""
FIRST_PAUSE_S = 2.0
"""The same while there is no key set at all."""
FETCH_TIMEOUT_S = 5.0
MAX_BODY_BYTES = 262_144
MAX_KEYS = 100
MAX_KID_CHARS = 200
_TYPES = frozenset({"RSA", "EC", "OKP"})
_FAILURES = (OSError, HTTPException, ValueError, RecursionError, TimeoutError)

_log = structlog.get_logger(__name__)
Keys = Mapping[str, jwt.PyJWK]


class BadKeySet(ValueError):
    """The answer holds no key that could verify a token."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        """A key set is where the settings say; whoever can redirect us could sign for everybody."""


class JwksFetch:
    """One GET of the settings' address: no redirects, bounded in time and bytes."""

    def __init__(self, url: str, *, timeout_s: float = FETCH_TIMEOUT_S) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_NoRedirects())

    async def __call__(self) -> bytes:
        """The body. Raises OSError, HTTPException, ValueError and TimeoutError."""
        async with asyncio.timeout(self._timeout_s):
            return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        give_up = time.monotonic() + self._timeout_s
        with self._opener.open(self._url, timeout=self._timeout_s) as response:
            body = bytearray()
            while chunk := response.read1(65_536):
                body += chunk
                if len(body) > MAX_BODY_BYTES or time.monotonic() > give_up:
                    raise BadKeySet("The key set is too large or too slow.")
            return bytes(body)


class JwksKeys:
    """Owns the key set. A `kid` is only ever looked up in it: no part of a token says what is fetched."""

    def __init__(self, fetch: Callable[[], Any], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`fetch` returns an awaitable of the key set as JSON bytes."""
        self._fetch = fetch
        self._monotonic = monotonic
        self._keys: Keys = {}
        self._fetched_at = float("-inf")
        self._next_fetch = float("-inf")
        self._lock = asyncio.Lock()

    async def load_key(self, token: str) -> tuple[str, Any]:
        """The key's type and the key. Raises 401 for a key that is not the issuer's, 503 while no key set is known."""
        kid = _read_kid(token)
        key = self._find(kid)
        age = self._monotonic() - self._fetched_at
        # While one request asks for a newer set, the others go on with this one.
        if key is None or age >= STALE_S or (age >= FRESH_S and not self._lock.locked()):
            await self._refresh()
            key = self._find(kid)
        if self._monotonic() - self._fetched_at >= STALE_S:
            raise unavailable("The issuer's keys can't be fetched.")
        if key is None:
            raise unauthorized("The token's key is not one of the issuer's keys.")
        return str(key.key_type), key.key

    def _find(self, kid: str | None) -> jwt.PyJWK | None:
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        async with self._lock:
            if self._monotonic() < self._next_fetch:
                return
            try:
                self._keys = read_key_set(await self._fetch())
                self._fetched_at = self._monotonic()
            except _FAILURES as error:
                _log.warning("the issuer's keys were not fetched", error=f"{type(error).__name__}: {error}"[:300])
            self._next_fetch = self._monotonic() + (PAUSE_S if self._keys else FIRST_PAUSE_S)


def read_key_set(body: bytes) -> Keys:
    """The public signing keys of a JWKS by `kid`. Raises ValueError where there are none; odd keys are passed over."""
    value: object = json.loads(body)
    listed = cast(dict[str, object], value).get("keys") if isinstance(value, dict) else None
    if not isinstance(listed, list) or len(cast(list[object], listed)) > MAX_KEYS:
        raise BadKeySet("The response is not a key set, or has too many keys.")
    keys: dict[str, jwt.PyJWK] = {}
    for item in cast(list[object], listed):
        key = _try_read_key(item)
        if key is not None:
            keys.setdefault(key.key_id or "", key)
    if not keys:
        raise BadKeySet("The key set contains no public key for signatures.")
    return keys


def _try_read_key(item: object) -> jwt.PyJWK | None:
    # A symmetric key that anybody can fetch is no secret, and must never verify anything.
    fields = cast(dict[str, Any], item) if isinstance(item, dict) else {}
    kid = fields.get("kid", "")
    if fields.get("kty") not in _TYPES or fields.get("use", "sig") != "sig":
        return None
    if not isinstance(kid, str) or len(kid) > MAX_KID_CHARS:
        return None
    try:
        return jwt.PyJWK.from_dict(fields)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


def _read_kid(token: str) -> str | None:
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, ValueError) as error:
        raise unauthorized("The token can't be read.") from error
    if kid is not None and (not isinstance(kid, str) or len(kid) > MAX_KID_CHARS):
        raise unauthorized("The token's key is not one of the issuer's keys.")
    return kid
