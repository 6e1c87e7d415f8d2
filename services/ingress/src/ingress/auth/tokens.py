"""Bearer tokens: which keys verify them, and what their claims say about the caller."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from everturn.errors import Invalid
from everturn.model.identity import Role
from ingress.auth.names import is_user_name
from ingress.errors import unauthorized

LEEWAY_S = 60
MAX_TOKEN_CHARS = 8192
MAX_TIME_S = 2**53
"""No time of a token is later; JSON numbers may have more digits than a float can hold."""
_NO_KEY = "AUTH_PUBLIC_KEY must be an RSA, EC or Ed25519 public key in PEM."
_FAMILIES = {"HS": "oct", "RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
SHARED_ALGORITHMS = ("HS256", "HS384", "HS512")
PUBLIC_ALGORITHMS = (*(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)), "ES256K", "EdDSA")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says.

    `tenants` and `projects` are None in a token without that claim, which is good in all of them.
    """

    user_id: str
    roles: frozenset[Role]
    tenants: frozenset[str] | None
    projects: frozenset[str] | None
    expires_at: float
    """Unix time after which, leeway included, the token is no longer good."""
    issued_at: float | None = None

    @property
    def person(self) -> str:
        """Who this is wherever the token is good; one server has one issuer."""
        return f"token:{self.user_id}"


class KeySource(Protocol):
    """Finds the key that should have signed a token, and the key's type as JWK calls it."""

    async def load_key(self, token: str) -> tuple[str, Any]: ...


class StaticKey:
    """One key from the settings: a public key in PEM, or a shared secret."""

    def __init__(self, key: object, *, key_type: str) -> None:
        self._key = key
        self._type = key_type

    @classmethod
    def from_pem(cls, pem: str) -> "StaticKey":
        """A public key; its kind decides which algorithms it may verify. Raises Invalid for anything else."""
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
        """With `unscoped`, tokens without a tenant or project claim are accepted, and good in every one."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._algorithms = tuple(algorithms)
        self._unscoped = unscoped

    async def verify(self, token: str) -> Claims:
        """Raises a 401 problem that says no more than needed."""
        if len(token) > MAX_TOKEN_CHARS:
            raise unauthorized("The token is too long.")
        self._check_header(token)
        key_type, key = await self._keys.load_key(token)
        # Only algorithms of the key's own family: a public key must never be taken for an HMAC secret.
        fitting = [name for name in self._algorithms if _FAMILIES.get(name[:2]) == key_type]
        try:
            payload: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=fitting,
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
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


def check_algorithms(names: Sequence[str], *, shared: bool) -> None:
    """Raises Invalid for a list that a shared secret, or else public keys, can't verify every name of."""
    known = (*SHARED_ALGORITHMS, *PUBLIC_ALGORITHMS)
    if not names or not frozenset(names) <= frozenset(known):
        raise Invalid(f"AUTH_ALGORITHMS must be names of {', '.join(known)}, separated by commas.")
    if shared and not frozenset(names) <= frozenset(SHARED_ALGORITHMS):
        raise Invalid("AUTH_ALGORITHMS with public keys needs AUTH_JWKS_URL or AUTH_PUBLIC_KEY, not AUTH_SECRET.")
    if not shared and not frozenset(names) <= frozenset(PUBLIC_ALGORITHMS):
        raise Invalid("AUTH_ALGORITHMS with HS256, HS384 or HS512 needs AUTH_SECRET alone, without public keys.")


def read_claims(payload: dict[str, Any]) -> Claims:
    """Read the claims of a verified payload. Raises a 401 problem for a subject that can't name a user."""
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
    # A claim that is there but can't be read allows nothing, not everything.
    return frozenset(_strings(payload[claim])) if claim in payload else None


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    items = cast(list[object], value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]
