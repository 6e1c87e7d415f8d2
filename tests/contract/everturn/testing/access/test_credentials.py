"""The in-memory credentials keep the contract."""

import pytest

from everturn_testing.accounts.credentials import MemoryCredentials
from everturn_testing.accounts.credentials_contract import CredentialsContract
from everturn_testing.core import FixedClock


class TestMemoryCredentials(CredentialsContract):
    @pytest.fixture
    def credentials(self, memory_clock: FixedClock) -> MemoryCredentials:
        return MemoryCredentials(memory_clock)

    @pytest.fixture
    def admin(self, credentials: MemoryCredentials) -> MemoryCredentials:
        return credentials
