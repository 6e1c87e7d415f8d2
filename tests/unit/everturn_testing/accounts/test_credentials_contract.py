"""Credentials that forget a revocation break the contract."""

import pytest

from everturn_testing.accounts.credentials import MemoryCredentials
from everturn_testing.accounts.credentials_contract import CredentialsContract
from everturn_testing.core import FixedClock


class Forgetful(MemoryCredentials):
    async def revoke_key(self, key_id: str) -> bool:
        return True


async def test_a_revocation_without_effect_is_noticed() -> None:
    forgetful = Forgetful(FixedClock())

    with pytest.raises(AssertionError):
        await CredentialsContract().test_a_key_is_revoked_once_and_stays_in_the_list(forgetful, forgetful)
