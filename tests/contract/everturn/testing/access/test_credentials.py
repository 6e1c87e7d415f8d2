"""The in-memory credentials keep the contract."""

import pytest

from everturn.testing.access.credentials import MemoryCredentials
from everturn.testing.access.credentials_contract import CredentialsContract
from everturn.testing.fixed_clock import FixedClock


class TestMemoryCredentials(CredentialsContract):
    @pytest.fixture
    def credentials(self, memory_clock: FixedClock) -> MemoryCredentials:
        return MemoryCredentials(memory_clock)

    @pytest.fixture
    def admin(self, credentials: MemoryCredentials) -> MemoryCredentials:
        return credentials
