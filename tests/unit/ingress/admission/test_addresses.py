"""Each peer has one form of address, regardless of headers."""

import pytest
from starlette.requests import HTTPConnection

from ingress.admission.connections import build_address, load_address


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("testclient", "unknown"),
    ],
)
def test_an_address_has_one_form(host: str, address: str) -> None:
    assert build_address(host) == address


def test_headers_that_clients_can_forge_change_nothing() -> None:
    scope = {"type": "http", "client": ("10.0.0.1", 1), "headers": [(b"x-forwarded-for", b"1.2.3.4")]}

    assert load_address(HTTPConnection(scope)) == "10.0.0.1"
    assert load_address(HTTPConnection({"type": "http", "client": None, "headers": []})) == "unknown"
