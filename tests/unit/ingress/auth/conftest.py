"""Gates with fakes behind them, and the credentials to pass one."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import jwt
import pytest
from starlette.datastructures import Headers

from everturn_testing.accounts.credentials import MemoryCredentials
from everturn_testing.core import FixedClock
from ingress.auth.gate import AuthGate, AuthMethods
from ingress.auth.origins import Origins
from ingress.auth.revocation import RevocationChecker
from ingress.auth.signed_tokens import EmbedTickets, Guests, Tickets, TokenSigner
from ingress.auth.tokens import StaticKey, TokenVerifier

SECRET = "a secret that is long enough for HS256"
SEALS = TokenSigner(b"0123456789abcdef0123456789abcdef")
VERIFIER = TokenVerifier(
    StaticKey(SECRET, key_type="oct"), issuer="i", audience="a", algorithms=("HS256",), unscoped=True
)


@dataclass
class Door:
    """A gate with its clock, which shows the real time, and its credentials."""

    gate: AuthGate
    clock: FixedClock
    credentials: MemoryCredentials
    guests: Guests
    tickets: Tickets

    def bearer(self, **claims: object) -> tuple[str, str]:
        now = int(time.time())
        body = {"iss": "i", "aud": "a", "sub": "ann", "exp": now + 600, "iat": now} | claims
        return "authorization", f"Bearer {jwt.encode(body, SECRET, 'HS256')}"


MakeDoor = Callable[..., Door]


def build_headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.encode(), value.encode()) for name, value in pairs])


def build_door(
    *,
    development: bool = False,
    verifier: TokenVerifier | None = VERIFIER,
    scopes: frozenset[tuple[str, str]] = frozenset({("t", "p")}),
    origins: frozenset[str] = frozenset(),
    clock: FixedClock | None = None,
) -> Door:
    clock = clock or FixedClock(datetime.now(UTC))
    credentials = MemoryCredentials(clock)
    guests, tickets = Guests(SEALS, clock, scopes=scopes), Tickets(SEALS, clock)
    methods = AuthMethods(
        RevocationChecker(credentials, clock), guests, tickets, Origins(origins), EmbedTickets(SEALS, clock)
    )
    gate = AuthGate(development=development, verifier=verifier, methods=methods, clock=clock)
    return Door(gate, clock, credentials, guests, tickets)


@pytest.fixture
def make_door() -> MakeDoor:
    """Makes a gate; by default outside development, with a verifier of HS256 and guests in t/p."""
    return build_door


@pytest.fixture
def headers() -> Callable[..., Headers]:
    """Headers of pairs."""
    return build_headers
