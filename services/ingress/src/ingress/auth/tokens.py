"""Bearer tokens: the keys that verify them, including the key set of an issuer, and their claims about the caller."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Protocol, cast

import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from everturn.core.errors import Invalid
from everturn.core.identity import Role
from ingress.auth.callers import is_user_name
from ingress.errors import unauthorized, unavailable

_log = structlog.get_logger(__name__)

LEEWAY_S = 60
MAX_TOKEN_CHARS = 8192
MAX_TIME_S = 2**53
"""Upper bound for times in tokens; JSON numbers can have more digits than a float can hold."""
_NO_KEY = "AUTH_PUBLIC_KEY must be an RSA, EC or Ed25519 public key in PEM."
_FAMILIES = {"HS": "oct", "RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
SHARED_ALGORITHMS = ("HS256", "HS384", "HS512")
PUBLIC_ALGORITHMS = (*(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)), "ES256K", "EdDSA")

FRESH_S = 300.0
"""After this age a key set is fetched again when it is needed; a withdrawn key is rejected from then on."""
STALE_S = 3600.0
"""The maximum age of a key set that is used while the issuer does not answer."""
PAUSE_S = 30.0
"""Between two fetches, however many unknown keys tokens name."""
FIRST_PAUSE_S = 2.0
"""The same while there is no key set at all."""
FETCH_TIMEOUT_S = 5.0
MAX_BODY_BYTES = 262_144
MAX_KEYS = 100
MAX_KID_CHARS = 200
_TYPES = frozenset({"RSA", "EC", "OKP"})
_FAILURES = (OSError, HTTPException, ValueError, RecursionError, TimeoutError)

Keys = Mapping[str, jwt.PyJWK]


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a verified token.

    `tenants` and `projects` are None in a token without that claim, which is valid for all of them.
    """

    user_id: str
    roles: frozenset[Role]
    tenants: frozenset[str] | None
    projects: frozenset[str] | None
    expires_at: float
    """Unix time, leeway included, after which the token is no longer valid."""
    issued_at: float | None = None

    @property
    def person(self) -> str:
        """The person's identity wherever the token is valid; one server has one issuer."""
        return f"token:{self.user_id}"


class KeySource(Protocol):
    """Finds the key that should have signed a token, and its JWK key type."""

    async def load_key(self, token: str) -> tuple[str, Any]: ...


class StaticKey:
    """One key from the settings: a public key in PEM, or a shared secret."""

    def __init__(self, key: object, *, key_type: str) -> None:
        self._key = key
        self._type = key_type

    @classmethod
    def from_pem(cls, pem: str) -> "StaticKey":
        """A public key; its type decides which algorithms it can verify. Raises Invalid for anything else."""
        try:
            key = load_pem_public_key(pem.encode())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise Invalid(_NO_KEY) from error
        if isinstance(key, RSAPublicKey):
            return cls(key, key_type="RSA")
        if isinstance(key, EllipticCurvePublicKey):
            return cls(key, key_type="EC")
        if isinstance(key, Ed25519PublicKey):
            return cls(key, key_type="OKP")
        raise Invalid(_NO_KEY)

    async def load_key(self, token: str) -> tuple[str, Any]:
        return self._type, self._key


class TokenVerifier:
    """Verifies signature, issuer, audience and times of a token, by an allow-list of algorithms."""

    def __init__(
        self, keys: KeySource, *, issuer: str, audience: str, algorithms: Sequence[str], unscoped: bool = False
    ) -> None:
        """With `unscoped`, tokens without a tenant or project claim are accepted and valid for all of them."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._algorithms = tuple(algorithms)
        self._unscoped = unscoped

    async def verify(self, token: str) -> Claims:
        """Verify a token. Raises a 401 problem that reveals no more than needed."""
        if len(token) > MAX_TOKEN_CHARS:
            raise unauthorized("The token is too long.")
        self._check_header(token)
        key_type, key = await self._keys.load_key(token)
        # Only algorithms of the key's own family: a public key must never be used as an HMAC secret.
        fitting = [name for name in self._algorithms if _FAMILIES.get(name[:2]) == key_type]
        try:
            payload: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=fitting,
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
            )
        except jwt.ExpiredSignatureError as error:
            raise unauthorized("The token has expired.") from error
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise unauthorized("The token is invalid.") from error
        claims = read_claims(payload)
        if not self._unscoped and (claims.tenants is None or claims.projects is None):
            raise unauthorized("The token must have the claims `tenant` and `project`.")
        return claims

    def _check_header(self, token: str) -> None:
        try:
            algorithm = jwt.get_unverified_header(token).get("alg")
        except (jwt.PyJWTError, ValueError) as error:
            raise unauthorized("The token can't be read.") from error
        if algorithm not in self._algorithms:
            raise unauthorized("The token's algorithm is not accepted.")


def read_claims(payload: dict[str, Any]) -> Claims:
    """Read the claims of a verified payload. Raises a 401 problem for a subject that is not a valid user name."""
    subject, expires = payload.get("sub"), payload.get("exp")
    if not isinstance(subject, str) or not is_user_name(subject):
        raise unauthorized("The token's subject is not a valid user name.")
    if not isinstance(expires, int | float) or abs(expires) > MAX_TIME_S:
        raise unauthorized("The token has no expiry time.")
    issued = payload.get("iat")
    if isinstance(issued, int | float) and abs(issued) > MAX_TIME_S:
        raise unauthorized("The token's time of issue is not a valid time.")
    return Claims(
        user_id=subject,
        roles=_read_roles(payload.get("roles")),
        tenants=_read_names(payload, "tenant"),
        projects=_read_names(payload, "project"),
        expires_at=float(expires) + LEEWAY_S,
        issued_at=float(issued) if isinstance(issued, int | float) else None,
    )


def _read_roles(value: object) -> frozenset[Role]:
    known = {role.value: role for role in Role if role is not Role.ANONYMOUS}
    return frozenset(known[name] for name in _strings(value) if name in known) | {Role.REGISTERED}


def _read_names(payload: dict[str, Any], claim: str) -> frozenset[str] | None:
    # A claim that is present but unreadable allows nothing, not everything.
    return frozenset(_strings(payload[claim])) if claim in payload else None


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    items = cast(list[object], value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]


class BadKeySet(ValueError):
    """The answer holds no key that could verify a token."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        """Only the configured URL counts; a redirecting attacker could sign any token."""


class JwksFetch:
    """One GET of the configured URL: no redirects, bounded in time and bytes."""

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
    """Owns the key set. A `kid` is only looked up in it: no part of a token determines what is fetched."""

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
        # While one request fetches a newer set, the others continue with this one.
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
                _log.warning("Could not fetch the issuer's keys", error=f"{type(error).__name__}: {error}"[:300])
            self._next_fetch = self._monotonic() + (PAUSE_S if self._keys else FIRST_PAUSE_S)


def read_key_set(body: bytes) -> Keys:
    """The public signing keys of a JWKS by `kid`. Raises ValueError if there are none; unsupported keys are skipped."""
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
    # A symmetric key that anybody can fetch is not secret, and must never verify anything.
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
