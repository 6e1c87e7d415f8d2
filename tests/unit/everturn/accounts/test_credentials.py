"""The drivers of Credentials and CredentialAdmin take the calls that are written for the ports."""

from everturn.accounts.credentials import CredentialAdmin, Credentials
from everturn.accounts.postgres import PostgresCredentialAdmin, PostgresCredentials
from everturn_testing.accounts.credentials import MemoryCredentials
from everturn_testing.port_shape import find_differences


def test_the_drivers_take_the_ports_calls() -> None:
    assert find_differences(Credentials, PostgresCredentials) == []
    assert find_differences(CredentialAdmin, PostgresCredentialAdmin) == []
    assert find_differences(Credentials, MemoryCredentials) == []
    assert find_differences(CredentialAdmin, MemoryCredentials) == []
