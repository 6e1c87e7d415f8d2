"""The gate decides who a request speaks for."""

import time

import jwt
import pytest
from starlette.datastructures import Headers

from ingress.auth.gate import AuthGate
from ingress.auth.tokens import StaticKey, TokenVerifier
from ingress.errors import ProblemError

SECRET = "a secret that is long enough for HS256"
VERIFIER = TokenVerifier(StaticKey(SECRET, key_type="oct"), issuer="i", audience="a", algorithms=("HS256",))
LOCAL = ("host", "localhost:8080")


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.encode(), value.encode()) for name, value in pairs])


def bearer(**claims: object) -> tuple[str, str]:
    body = {"iss": "i", "aud": "a", "sub": "ann", "exp": int(time.time()) + 60} | claims
    return "authorization", f"Bearer {jwt.encode(body, SECRET, 'HS256')}"


async def refusal(gate: AuthGate, *pairs: tuple[str, str], tenant: str = "t", project: str = "p") -> ProblemError:
    with pytest.raises(ProblemError) as refused:
        await gate.authenticate(headers(*pairs), tenant=tenant, project=project)
    return refused.value


async def test_in_development_a_local_request_is_dev_or_who_it_names() -> None:
    gate = AuthGate(development=True, verifier=None)

    plain = await gate.authenticate(headers(LOCAL), tenant="t", project="p")
    named = await gate.authenticate(headers(LOCAL, ("x-dev-user", "ann")), tenant="t", project="p")

    assert (plain.principal.tenant, plain.principal.project, plain.principal.user_id) == ("t", "p", "dev")
    assert named.principal.user_id == "ann"
    assert plain.expires_at is None


async def test_outside_development_nobody_comes_in_without_a_token() -> None:
    gate = AuthGate(development=False, verifier=VERIFIER)

    refused = await refusal(gate, LOCAL, ("x-dev-user", "ann"))

    assert refused.status_code == 401
    assert refused.headers and refused.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_bad_token_is_401_also_in_development_and_never_dev() -> None:
    for verifier in (None, VERIFIER):
        gate = AuthGate(development=True, verifier=verifier)
        for credential in ("Bearer x", "Bearer", "Basic YTpi", "x"):
            assert (await refusal(gate, LOCAL, ("authorization", credential))).status_code == 401
        assert (
            await refusal(gate, LOCAL, ("authorization", "Bearer x"), ("authorization", "Bearer y"))
        ).status_code == 401


async def test_a_token_speaks_for_its_subject_and_not_for_the_header() -> None:
    gate = AuthGate(development=True, verifier=VERIFIER)

    caller = await gate.authenticate(headers(LOCAL, bearer(), ("x-dev-user", "bob")), tenant="t", project="p")

    assert caller.principal.user_id == "ann"
    assert caller.expires_at is not None


async def test_another_tenant_or_project_than_the_tokens_is_absent() -> None:
    gate = AuthGate(development=False, verifier=VERIFIER)

    assert (await gate.authenticate(headers(bearer(tenant="t", project="p")), tenant="t", project="p")).principal
    assert (await refusal(gate, bearer(tenant="other"))).status_code == 404
    assert (await refusal(gate, bearer(tenant="t", project=["x"]))).status_code == 404


@pytest.mark.parametrize("name", ["a:b", "{a}", "a b", "..", "*", "x" * 65, "a\x00"])
async def test_a_name_that_is_none_is_absent(name: str) -> None:
    gate = AuthGate(development=True, verifier=None)

    assert (await refusal(gate, LOCAL, tenant=name)).status_code == 404
    assert (await refusal(gate, LOCAL, project=name)).status_code == 404
