"""Invalid credentials, made with what a forger may have: the public key, keys of its own, and old tokens."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

ISSUER, AUDIENCE, TENANT, PROJECT = "https://issuer.example", "everturn", "acme", "one"
LEEWAY_S = 60
"""The accepted difference between clocks."""


@dataclass(frozen=True)
class Keys:
    """The issuer's key, its public half as everybody has it, and a key of the forger's."""

    issuer: RSAPrivateKey
    public_pem: str
    forger: RSAPrivateKey


Forge = Callable[[Keys], str]


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a good token, with changes; None removes a claim."""
    now = int(time.time())
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600}
    good |= {"tenant": TENANT, "project": PROJECT}
    return {name: value for name, value in (good | changes).items() if value is not None}


def signed(keys: Keys, header: dict[str, Any] | None = None, **changes: Any) -> str:
    """A token of the issuer's."""
    return jwt.encode(claims(**changes), keys.issuer, "RS256", headers=header)


def saying(**changes: Any) -> Forge:
    return lambda keys: signed(keys, **changes)


def with_header(**header: Any) -> Forge:
    """Signed by the forger, with a header that points to its key or to nothing."""
    return lambda keys: jwt.encode(claims(), keys.forger, "RS256", headers=header)


def unsigned(algorithm: str, signature: str = "") -> Forge:
    return lambda _: f"{_encode({'alg': algorithm, 'typ': 'JWT'})}.{_encode(claims())}.{signature}"


def confused(algorithm: str, digest: str) -> Forge:
    """The public key taken for a shared secret."""

    def forge(keys: Keys) -> str:
        said = f"{_encode({'alg': algorithm, 'typ': 'JWT'})}.{_encode(claims())}"
        sealed = hmac.new(keys.public_pem.encode(), said.encode(), getattr(hashlib, digest)).digest()
        return f"{said}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

    return forge


def _encode(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _altered(keys: Keys) -> str:
    head, _, seal = signed(keys).split(".")
    return f"{head}.{_encode(claims(sub='admin'))}.{seal}"


BAD_TOKENS: dict[str, Forge] = {
    # Not signed by the issuer
    "alg none": unsigned("none"),
    "alg none, spelled otherwise": unsigned("nOnE"),
    "alg none with a seal": unsigned("none", "c2VhbA"),
    "no alg": unsigned(""),
    "another alg": unsigned("HS256", "c2VhbA"),
    "the public key as a secret": confused("HS256", "sha256"),
    "the public key as a long secret": confused("HS512", "sha512"),
    "another key": lambda keys: jwt.encode(claims(), keys.forger, "RS256"),
    "altered": _altered,
    "cut": lambda keys: signed(keys)[:-8],
    "without its seal": lambda keys: signed(keys).rpartition(".")[0] + ".",
    "kid of a path": with_header(kid="../../../../dev/null"),
    "kid of an address": with_header(kid="http://evil.example/keys"),
    "kid of sql": with_header(kid="' UNION SELECT 'x' --"),
    "kid of a command": with_header(kid="| id"),
    "address of its keys": with_header(jku="http://evil.example/keys"),
    "address of its certificate": with_header(x5u="http://evil.example/cert"),
    # Signed, and not good here or now
    "expired": saying(exp=int(time.time()) - 3600),
    "expired beyond the leeway": saying(exp=int(time.time()) - LEEWAY_S - 30),
    "without an end": saying(exp=None),
    "end of letters": saying(exp="tomorrow"),
    "not yet": saying(nbf=int(time.time()) + 3600),
    "issued in the future": saying(iat=int(time.time()) + 3600),
    "another issuer": saying(iss="https://evil.example"),
    "no issuer": saying(iss=None),
    "another audience": saying(aud="other"),
    "no audience": saying(aud=None),
    "nobody": saying(sub=None),
    "empty name": saying(sub=""),
    "without a tenant": saying(tenant=None),
    "without a project": saying(project=None),
    "name of a guest": saying(sub="guest~abc"),
    "name that is a key": saying(sub="a:{b}"),
    # No token
    "letters": lambda _: "x",
    "three parts": lambda _: "a.b.c",
    "dots": lambda _: "....",
    "9 KB": lambda _: "x" * 9_000,
    "an api key that nobody has": lambda _: "evk_0123456789abcdef_" + "a" * 43,
    "a cut api key": lambda _: "evk_0123456789abcdef",
    "a forged guest": lambda _: "evg_eyJ1c2VyIjoiYSJ9.c2lnbmF0dXJl",
    "a forged ticket": lambda _: "evt_eyJ1c2VyIjoiYSJ9.c2lnbmF0dXJl",
}
"""By name: credentials that are 401 in a header, as a ticket and over a socket."""

FOREIGN_PAGES: dict[str, dict[str, str]] = {
    "another origin": {"Origin": "https://evil.example"},
    "an opaque origin": {"Origin": "null"},
    "our name in another": {"Origin": "https://chat.example.evil.example"},
    "another scheme": {"Origin": "http://chat.example"},
    "another port": {"Origin": "https://chat.example:8443"},
    "a form": {"Origin": "https://evil.example", "Content-Type": "application/x-www-form-urlencoded"},
    "text of a form": {"Origin": "https://evil.example", "Content-Type": "text/plain"},
}
"""By name: headers of a page that must not write here, for any user: 403."""
