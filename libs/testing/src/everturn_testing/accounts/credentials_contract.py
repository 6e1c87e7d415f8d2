"""The contract of Credentials and CredentialAdmin as tests; a subclass defines the fixtures `credentials`, `admin`."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from everturn.accounts.credentials import ApiKey, CredentialAdmin, Credentials
from everturn.core.identity import Principal, Role

_MADE = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def _build_key(label: str = "nightly", *, age_s: float = 0) -> ApiKey:
    tenant = f"t{uuid.uuid4().hex[:12]}"
    owner = Principal(tenant, "support", "ann", frozenset({Role.REGISTERED, Role.PAID}))
    created = _MADE - timedelta(seconds=age_s)
    return ApiKey(uuid.uuid4().hex[:16], "0" * 64, owner, label, created, _MADE + timedelta(days=1))


class CredentialsContract:
    """Required of every credentials driver."""

    async def test_a_key_is_found_by_its_id_with_all_fields(
        self, credentials: Credentials, admin: CredentialAdmin
    ) -> None:
        key = _build_key()
        await admin.save_key(key)

        found = await credentials.find_key(key.key_id)

        assert found is not None
        assert replace(found, last_used=None) == key
        assert await credentials.find_key("0" * 16) is None

    async def test_only_the_day_of_the_last_use_is_saved(
        self, credentials: Credentials, admin: CredentialAdmin
    ) -> None:
        key = _build_key()
        await admin.save_key(key)
        await credentials.find_key(key.key_id)

        used = (await admin.load_keys(tenant=key.owner.tenant))[0].last_used

        assert used is not None
        assert (used.hour, used.minute, used.second) == (0, 0, 0)

    async def test_keys_are_listed_newest_first_and_by_tenant(self, admin: CredentialAdmin) -> None:
        newer = _build_key("newer")
        older = replace(_build_key("older", age_s=60), owner=newer.owner)
        for key in (older, newer, _build_key("another tenant's")):
            await admin.save_key(key)

        found = await admin.load_keys(tenant=newer.owner.tenant)

        assert [key.label for key in found] == ["newer", "older"]
        assert len(await admin.load_keys(limit=2)) == 2

    async def test_a_key_is_revoked_once_and_stays_in_the_list(
        self, credentials: Credentials, admin: CredentialAdmin
    ) -> None:
        key = _build_key()
        await admin.save_key(key)

        revoked = [await admin.revoke_key(key.key_id), await admin.revoke_key(key.key_id)]

        found = await credentials.find_key(key.key_id)
        assert revoked == [True, False]
        assert found is not None and found.revoked_at is not None
        assert [key.key_id for key in await admin.load_keys(tenant=key.owner.tenant)] == [key.key_id]
        assert not await admin.revoke_key("1" * 16)

    async def test_a_cutoff_applies_to_its_person_and_scope(
        self, credentials: Credentials, admin: CredentialAdmin
    ) -> None:
        user = f"u{uuid.uuid4().hex[:12]}"
        here, there = Principal("acme", "one", user), Principal("acme", "two", user)
        elsewhere, other = Principal("other", "one", user), Principal("acme", "one", user + "x")

        moment = await admin.save_cutoff(user, tenant="acme", project="one")

        assert await credentials.find_cutoff(here) == moment
        assert [await credentials.find_cutoff(who) for who in (there, elsewhere, other)] == [None] * 3

    async def test_a_global_cutoff_applies_everywhere_and_the_latest_counts(
        self, credentials: Credentials, admin: CredentialAdmin
    ) -> None:
        user = f"u{uuid.uuid4().hex[:12]}"
        first = await admin.save_cutoff(user, tenant="acme")
        second = await admin.save_cutoff(user)

        assert second >= first
        assert await credentials.find_cutoff(Principal("acme", "one", user)) == second
        assert await credentials.find_cutoff(Principal("other", "two", user)) == second
