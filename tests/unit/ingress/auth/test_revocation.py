"""Revoked keys and users are refused within seconds."""

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from everturn.accounts.credentials import ApiKey
from everturn.core.identity import Principal, Role
from everturn_testing.accounts.credentials import MemoryCredentials
from everturn_testing.core import FixedClock
from ingress.auth.api_keys import build_key_text
from ingress.auth.callers import Caller, Kind, Proof
from ingress.auth.revocation import MAX_AGE_S, RevocationChecker
from ingress.errors import ProblemError

ANN = Principal("t", "p", "ann", frozenset({Role.REGISTERED, Role.PAID}))


@dataclass
class Harness:
    clock: FixedClock
    credentials: MemoryCredentials
    checker: RevocationChecker

    async def make(self, **changes: object) -> tuple[str, ApiKey]:
        text, made = build_key_text()
        key = replace(ApiKey(made.key_id, made.secret_hash, ANN, "", self.clock.now()), **changes)
        await self.credentials.save_key(key)
        return text, key


@pytest.fixture
def harness() -> Harness:
    clock = FixedClock()
    credentials = MemoryCredentials(clock)
    return Harness(clock, credentials, RevocationChecker(credentials, clock))


async def refusal(asking: Awaitable[object]) -> int:
    with pytest.raises(ProblemError) as refused:
        await asking
    return refused.value.status_code


async def test_a_key_speaks_for_its_owner_with_its_roles(harness: Harness) -> None:
    text, key = await harness.make()

    caller = await harness.checker.load_key_caller(text)

    assert caller.principal == ANN
    assert caller.proof == Proof("key", key.created_at.timestamp(), key.key_id)


async def test_unknown_wrong_and_expired_keys_are_the_same_401(harness: Harness) -> None:
    past = harness.clock.now() - timedelta(seconds=1)
    good, key = await harness.make()
    wrong = f"evk_{key.key_id}_{build_key_text()[0].rpartition('_')[2][-43:]:a>43}"
    texts = [build_key_text()[0], wrong, "evk_x"]
    for changes in (
        {"expires_at": past},
        {"revoked_at": past},
        {"owner": Principal("t", "p", "a:b")},
        {"owner": Principal("t", "p", "ann", frozenset({Role.ANONYMOUS}))},
    ):
        texts.append((await harness.make(**changes))[0])

    said = set()
    for text in texts:
        with pytest.raises(ProblemError) as refused:
            await harness.checker.load_key_caller(text)
        said.add((refused.value.status_code, str(refused.value.detail)))

    assert len(said) == 1
    assert (await harness.checker.load_key_caller(good)).principal == ANN


async def test_a_key_is_cached_and_its_revocation_takes_effect_within_seconds(harness: Harness) -> None:
    text, key = await harness.make()
    for _ in range(5):
        caller = await harness.checker.load_key_caller(text)
    asked = harness.credentials.asked
    await harness.credentials.revoke_key(key.key_id)

    harness.clock.advance(MAX_AGE_S)

    assert asked == 1
    assert MAX_AGE_S <= 30
    assert await refusal(harness.checker.load_key_caller(text)) == 401
    assert await refusal(harness.checker.check(caller)) == 401


@pytest.mark.parametrize("kind", ["token", "guest", "key"])
async def test_only_credentials_from_before_a_cutoff_are_refused(harness: Harness, kind: Kind) -> None:
    _, key = await harness.make()
    before = harness.clock.now().timestamp()
    harness.clock.advance(10)
    await harness.credentials.save_cutoff("ann")
    after = harness.clock.now().timestamp() + 1

    assert await refusal(harness.checker.check(Caller(ANN, None, Proof(kind, before, key.key_id)))) == 401
    assert await refusal(harness.checker.check(Caller(ANN, None, Proof(kind, None, key.key_id)))) == 401
    await harness.checker.check(Caller(ANN, None, Proof(kind, after, key.key_id)))
    await harness.checker.check(Caller(replace(ANN, user_id="bob"), None, Proof(kind, before, key.key_id)))


async def test_a_cutoff_takes_effect_within_seconds_despite_the_cache(harness: Harness) -> None:
    caller = Caller(ANN, None, Proof("token", harness.clock.now().timestamp()))
    await harness.checker.check(caller)
    await harness.credentials.save_cutoff("ann", tenant="t")

    harness.clock.advance(MAX_AGE_S)

    assert await refusal(harness.checker.check(caller)) == 401


async def test_development_mode_makes_no_query(harness: Harness) -> None:
    await harness.checker.check(Caller(ANN, None, Proof("local")))

    assert harness.credentials.asked == 0
