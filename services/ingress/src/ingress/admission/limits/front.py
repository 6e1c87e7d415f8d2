"""What stands before every request: how often bad credentials come, how often a principal calls, how much it sends."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

from starlette.requests import HTTPConnection
from starlette.types import Scope

from everturn.model.identity import Principal
from everturn.model.limits.token_bucket import parse_limits
from everturn.ports.limits.token_buckets import TokenBuckets
from ingress.admission.limits.addresses import load_address
from ingress.admission.limits.bodies import BodyBudget
from ingress.admission.limits.defaults import READS, WRITES
from ingress.admission.limits.guessing import CredentialGuard
from ingress.admission.limits.rates import Drawn, RateGate
from ingress.admission.metrics import IngressMetrics
from ingress.settings import IngressSettings

DRAWN_KEY = "everturn.drawn"


class Front:
    """The limits of one process, as routes ask for them."""

    def __init__(self, rates: RateGate, guard: CredentialGuard, bodies: BodyBudget) -> None:
        self.rates = rates
        self.guard = guard
        self.bodies = bodies

    @contextmanager
    def authenticating(self, connection: HTTPConnection) -> Generator[None]:
        """Around the check of the connection's bearer credential. Raises a 429 problem."""
        with self.guard.watching(load_address(connection), connection.headers.get("authorization", "")):
            yield

    async def admit(self, connection: HTTPConnection, principal: Principal, *, write: bool) -> Drawn | None:
        """Draw a token for this call, kept with the connection too; None without a limit. Raises a 429 problem."""
        connection.scope.pop(DRAWN_KEY, None)

        def keep(drawn: Drawn) -> None:
            connection.scope[DRAWN_KEY] = drawn

        await self.rates.admit(principal, write=write, address=load_address(connection), keep=keep)
        return load_drawn(connection.scope)


def build_front(
    settings: IngressSettings, buckets: TokenBuckets, *, metrics: IngressMetrics, monotonic: Callable[[], float]
) -> Front:
    """The limits that the settings ask for. Development mode has one user, who is limited only where it is said."""
    rates = RateGate(
        buckets,
        writes=parse_limits(settings.rate_limits_writes, {} if settings.development else WRITES),
        reads=parse_limits(settings.rate_limits_reads, {} if settings.development else READS),
        metrics=metrics,
        monotonic=monotonic,
    )
    bodies = BodyBudget(
        max_bytes=settings.bodies_max_bytes, max_bytes_per_user=settings.bodies_max_bytes_per_user, metrics=metrics
    )
    guard = CredentialGuard(settings.bad_credentials_limit, metrics=metrics, monotonic=monotonic)
    return Front(rates, guard, bodies)


def load_drawn(scope: Scope) -> Drawn | None:
    """What the call of this scope drew; None before it did, and without a limit."""
    return cast(Drawn | None, scope.get(DRAWN_KEY))


def load_front(connection: HTTPConnection) -> Front:
    """The limits of this application."""
    return cast(Front, connection.app.state.front)
