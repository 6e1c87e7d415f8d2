"""Bearer tokens: which are accepted, and how their claims are read."""

import base64
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from everturn.core.errors import Invalid
from everturn.core.identity import Role
from ingress.auth.tokens import StaticKey, TokenVerifier, read_claims
from ingress.errors import ProblemError

ISSUER, AUDIENCE = "https://issuer.example", "everturn"
SECRET = "a secret that is long enough for HS256"


@pytest.fixture(scope="module")
def private_key() -> RSAPrivateKey:
    return generate_rsa(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def pem(private_key: RSAPrivateKey) -> str:
    return private_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.fixture(scope="module")
def verifier(pem: str) -> TokenVerifier:
    algorithms = ("RS256", "ES256", "HS256")
    return TokenVerifier(StaticKey.from_pem(pem), issuer=ISSUER, audience=AUDIENCE, algorithms=algorithms)


def payload(**changes: Any) -> dict[str, Any]:
    fields = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 600}
    fields |= {"tenant": "acme", "project": "one"} | changes
    return {name: value for name, value in fields.items() if value is not None}


def forge(header: dict[str, Any], body: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(body).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


async def refusal(verifier: TokenVerifier, token: str) -> int:
    with pytest.raises(ProblemError) as refused:
        await verifier.verify(token)
    return refused.value.status_code


async def test_a_good_token_names_user_roles_and_scope(verifier: TokenVerifier, private_key: RSAPrivateKey) -> None:
    token = jwt.encode(payload(roles=["paid", "unknown"], tenant="acme", project=["one", "two"]), private_key, "RS256")

    claims = await verifier.verify(token)

    assert claims.user_id == "ann"
    assert claims.roles == {Role.REGISTERED, Role.PAID}
    assert claims.tenants == {"acme"}
    assert claims.projects == {"one", "two"}


async def test_clocks_may_differ_by_a_minute_and_no_more(verifier: TokenVerifier, private_key: RSAPrivateKey) -> None:
    now = int(time.time())

    await verifier.verify(jwt.encode(payload(exp=now - 50, nbf=now + 50), private_key, "RS256"))

    assert await refusal(verifier, jwt.encode(payload(exp=now - 70), private_key, "RS256")) == 401
    assert await refusal(verifier, jwt.encode(payload(nbf=now + 70), private_key, "RS256")) == 401


async def test_a_token_from_the_future_is_refused(verifier: TokenVerifier, private_key: RSAPrivateKey) -> None:
    assert await refusal(verifier, jwt.encode(payload(iat=int(time.time()) + 70), private_key, "RS256")) == 401


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.example"},
        {"aud": "other"},
        {"iss": None},
        {"aud": None},
        {"exp": None},
        {"sub": None},
        {"sub": "a:b"},
        {"sub": ""},
        {"sub": 7},
        {"exp": "soon"},
    ],
)
async def test_a_token_with_other_claims_is_refused(
    verifier: TokenVerifier, private_key: RSAPrivateKey, changes: dict[str, Any]
) -> None:
    body = payload(**changes)
    token = jwt.api_jws.encode(json.dumps(body).encode(), private_key, "RS256")

    assert await refusal(verifier, token) == 401


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", ""])
async def test_an_unsigned_token_is_refused(verifier: TokenVerifier, algorithm: str) -> None:
    assert await refusal(verifier, forge({"alg": algorithm, "typ": "JWT"}, payload())) == 401


async def test_a_public_key_is_never_taken_for_a_shared_secret(verifier: TokenVerifier, pem: str) -> None:
    import_free_hmac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    head, body, _ = forge({"alg": "HS256", "typ": "JWT"}, payload()).split(".")
    signature = import_free_hmac.sign(f"{head}.{body}".encode(), pem.encode())
    token = f"{head}.{body}." + base64.urlsafe_b64encode(signature).decode().rstrip("=")

    assert await refusal(verifier, token) == 401


async def test_a_key_that_is_too_short_proves_nothing() -> None:
    short = generate_rsa(public_exponent=65537, key_size=1024)
    pem = short.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    verifier = TokenVerifier(StaticKey.from_pem(pem), issuer=ISSUER, audience=AUDIENCE, algorithms=("RS256",))

    assert await refusal(verifier, jwt.encode(payload(), short, "RS256")) == 401


async def test_another_key_or_another_kind_of_key_is_refused(verifier: TokenVerifier) -> None:
    other = generate_rsa(public_exponent=65537, key_size=2048)

    assert await refusal(verifier, jwt.encode(payload(), other, "RS256")) == 401
    assert await refusal(verifier, jwt.encode(payload(), generate_ec(SECP256R1()), "ES256")) == 401
    assert await refusal(verifier, jwt.encode(payload(), other, "RS512")) == 401


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "....", "é.é.é", "x" * 9000, "eyJhbGciOiJSUzI1NiJ9.e30."])
async def test_what_is_no_token_is_refused(verifier: TokenVerifier, token: str) -> None:
    assert await refusal(verifier, token) == 401


async def test_a_shared_secret_verifies_hs256_only(private_key: RSAPrivateKey) -> None:
    verifier = TokenVerifier(
        StaticKey(SECRET, key_type="oct"), issuer=ISSUER, audience=AUDIENCE, algorithms=("HS256", "RS256")
    )

    assert (await verifier.verify(jwt.encode(payload(), SECRET, "HS256"))).user_id == "ann"
    assert await refusal(verifier, jwt.encode(payload(), private_key, "RS256")) == 401


def test_a_scope_claim_that_cannot_be_read_allows_nothing() -> None:
    claims = read_claims(payload(tenant=7, project={"a": 1}))

    assert claims.tenants == frozenset()
    assert claims.projects == frozenset()


@pytest.mark.parametrize("claim", ["exp", "iat"])
@pytest.mark.parametrize("time", [10**400, -(10**400), 1e300, -1e300])
def test_a_time_that_is_none_is_refused(claim: str, time: float) -> None:
    with pytest.raises(ProblemError) as refused:
        read_claims(payload() | {claim: time})

    assert refused.value.status_code == 401


def test_a_key_of_no_known_kind_is_refused() -> None:
    with pytest.raises(Invalid, match="AUTH_PUBLIC_KEY"):
        StaticKey.from_pem("no key")
