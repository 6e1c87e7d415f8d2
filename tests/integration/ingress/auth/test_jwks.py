"""Keys of an issuer over real HTTP: they rotate, and the issuer hangs, sends bad answers, redirects or is down."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key

from everturn_testing.core import FixedClock
from ingress.auth.tokens import (
    FIRST_PAUSE_S,
    FRESH_S,
    MAX_BODY_BYTES,
    PAUSE_S,
    STALE_S,
    JwksFetch,
    JwksKeys,
    TokenVerifier,
)
from ingress.errors import ProblemError

ALGORITHM = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)


def build_set(**keys: EllipticCurvePrivateKey) -> bytes:
    listed = [{**ALGORITHM.to_jwk(key.public_key(), as_dict=True), "kid": kid} for kid, key in keys.items()]
    return json.dumps({"keys": listed}).encode()


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.0 {status}", f"Content-Length: {len(body)}", *headers))
    return head.encode() + b"\r\n" + body


class Issuer:
    """Answers each request with `said`, and hangs without it. `paths` are the requested paths."""

    def __init__(self) -> None:
        self.said: bytes | None = None
        self.paths: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.paths.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode())
        if self.said is None:
            await reader.read()
        else:
            writer.write(self.said)
        writer.close()


class Harness:
    """An issuer, and the verifier of its tokens."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.clock = FixedClock()
        self.keys = {name: generate_private_key(SECP256R1()) for name in ("one", "two")}
        source = JwksKeys(JwksFetch(issuer.url, timeout_s=2), monotonic=self.clock.monotonic)
        self.verifier = TokenVerifier(source, issuer="i", audience="a", algorithms=("ES256",))

    def publish(self, *names: str) -> None:
        self.issuer.said = answer(build_set(**{name: self.keys[name] for name in names}))

    def token(self, signer: str, kid: str | None = "") -> str:
        body = {"iss": "i", "aud": "a", "sub": "ann", "exp": int(time.time()) + 600}
        body |= {"tenant": "t", "project": "p"}
        named = signer if kid == "" else kid
        return jwt.encode(body, self.keys[signer], "ES256", headers=None if named is None else {"kid": named})

    async def status(self, signer: str, kid: str | None = "") -> int:
        try:
            await self.verifier.verify(self.token(signer, kid))
        except ProblemError as refused:
            return refused.status_code
        return 200


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    issuer = Issuer()
    server = await asyncio.start_server(issuer.serve, "127.0.0.1", 0)
    issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    yield Harness(issuer)
    server.close()


async def test_keys_are_fetched_once_and_kept(harness: Harness) -> None:
    harness.publish("one")

    assert [await harness.status("one") for _ in range(5)] == [200] * 5
    assert await harness.status("one", None) == 200
    assert harness.issuer.paths == ["/keys"]


async def test_a_new_key_is_found_and_fetches_for_unknown_keys_are_limited(harness: Harness) -> None:
    harness.publish("one")
    assert await harness.status("one") == 200
    harness.publish("one", "two")

    early = await harness.status("two")
    harness.clock.advance(PAUSE_S)
    assert [early, await harness.status("two"), await harness.status("one")] == [401, 200, 200]
    assert [await harness.status("one", f"unknown{n}") for n in range(20)] == [401] * 20

    assert len(harness.issuer.paths) == 2


async def test_a_withdrawn_key_is_refused_once_the_set_is_old(harness: Harness) -> None:
    harness.publish("one", "two")
    assert await harness.status("one") == 200
    harness.publish("two")

    harness.clock.advance(FRESH_S)

    assert [await harness.status("one"), await harness.status("two")] == [401, 200]


async def test_concurrent_requests_share_a_fetch(harness: Harness) -> None:
    harness.publish("one")

    assert await asyncio.gather(*(harness.status("one") for _ in range(20))) == [200] * 20
    assert len(harness.issuer.paths) == 1


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"garbage\r\n\r\n",
        answer(b"no json"),
        answer(b"[" * 200_000),
        answer(b"[]"),
        answer(b'{"keys": []}'),
        answer(b'{"keys": [1, {"kty": "RSA"}, {"kty": "EC", "crv": 7}]}'),
        answer(b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one"}]}'),
        answer(b" " * (MAX_BODY_BYTES + 1)),
        answer(b"{}", "500 No"),
    ],
    ids=["closed", "no-http", "no-json", "deep", "list", "empty", "odd-keys", "symmetric", "huge", "error"],
)
async def test_an_invalid_key_set_is_a_503_and_old_keys_stay_valid(harness: Harness, said: bytes) -> None:
    harness.issuer.said = said
    assert await harness.status("one") == 503

    harness.publish("one")
    harness.clock.advance(FIRST_PAUSE_S)
    assert await harness.status("one") == 200
    harness.issuer.said = said
    harness.clock.advance(FRESH_S)

    assert await harness.status("one") == 200
    harness.clock.advance(STALE_S)
    assert await harness.status("one") == 503


async def test_a_redirect_is_not_followed(harness: Harness) -> None:
    harness.issuer.said = answer(b"", "302 Found", f"Location: {harness.issuer.url}/elsewhere")

    assert await harness.status("one") == 503
    assert harness.issuer.paths == ["/keys"]


async def test_a_hanging_issuer_does_not_delay_tokens_of_known_keys(harness: Harness) -> None:
    harness.publish("one")
    assert await harness.status("one") == 200
    harness.issuer.said = None
    harness.clock.advance(PAUSE_S)

    waiting = asyncio.create_task(harness.status("one", "unknown"))
    while len(harness.issuer.paths) < 2:  # noqa: ASYNC110 - the list is the only sign of a fetch
        await asyncio.sleep(0.01)
    known = [await harness.status("one") for _ in range(10)]

    assert not waiting.done()
    assert known == [200] * 10
    assert await waiting == 401


@pytest.mark.parametrize(
    "kid",
    ["../../etc/passwd", "/dev/null", "http://127.0.0.1:9/x", "one/../one", "one\x00", "' OR 1=1 --", "é" * 100,
     "x" * 5000, " one", "ONE"],
)  # fmt: skip
async def test_a_kid_is_looked_up_and_never_fetched(harness: Harness, kid: str) -> None:
    harness.publish("one")

    assert await harness.status("one", kid) == 401
    assert set(harness.issuer.paths) <= {"/keys"}


async def test_without_a_kid_only_a_single_key_is_meant(harness: Harness) -> None:
    harness.publish("one", "two")

    assert await harness.status("one", None) == 401


async def test_a_key_of_the_set_verifies_only_what_it_signed(harness: Harness) -> None:
    harness.publish("one", "two")

    assert await harness.status("one", "two") == 401


async def test_an_unreachable_issuer_is_a_network_error() -> None:
    with pytest.raises(OSError, match="refused"):
        await JwksFetch("http://127.0.0.1:9/keys")()
