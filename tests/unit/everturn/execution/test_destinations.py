"""Which hosts a list allows, whatever a program or an operator writes."""

from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everturn.execution.destinations import Destination, normalize_host, parse_destination


@pytest.mark.parametrize(
    ("entry", "allowed", "refused"),
    [
        ("api.example.com", [("api.example.com", 443)], [("api.example.com", 80), ("example.com", 443)]),
        ("example.com:80", [("example.com", 80)], [("example.com", 443), ("a.example.com", 80)]),
        (
            "*.example.com:8443",
            [("a.example.com", 8443), ("a.b.example.com", 8443)],
            [("example.com", 8443), ("badexample.com", 8443), ("a.example.com.evil.org", 8443), ("a.example.com", 443)],
        ),
    ],
)
def test_an_entry_allows_exactly_its_hosts_and_its_port(entry, allowed, refused):
    destination = parse_destination(entry)

    assert all(destination.allows(*each) for each in allowed)
    assert not any(destination.allows(*each) for each in refused)


@pytest.mark.parametrize(
    "entry",
    [
        *("", "*", "*.", "*.com", "localhost", "a..example.com", "-a.example.com", "a b.example.com", "a.example.com:"),
        *("a.example.com:0", "a.example.com:65536", "a.example.com:http", "a.example.com:\u0661", "x*.example.com"),
        *("127.0.0.1", "0x7f.1", "0x7f.0x1", "2130706433", "[::1]:443", "::1", "1.2.3.4.", "https://a.example.com"),
        *("user@a.example.com", "a.example.com/x", "a.example.com\n", "b\u00fccher.example", "a." * 130 + "example"),
    ],
)
def test_an_entry_that_is_no_host_is_refused(entry):
    with pytest.raises(ValueError, match=r"full name of a host|has no port"):
        parse_destination(entry)


@given(st.text(max_size=80) | st.from_regex(r"[0-9a-fxA-F.:%\[\]*-]{1,40}", fullmatch=True))
@example("a.example.com")
def test_every_text_is_refused_or_has_one_form(text):
    try:
        host = normalize_host(text)
    except ValueError:
        return

    assert normalize_host(host) == host == str(host).lower()
    assert set(host) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-.")
    with pytest.raises(ValueError, match="does not appear to be"):
        ip_address(host)
    assert parse_destination(str(Destination(host, 8443))) == Destination(host, 8443)
