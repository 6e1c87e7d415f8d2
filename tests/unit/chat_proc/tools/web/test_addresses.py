import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.tools.web.client import MAX_ADDRESSES, AddressGuard, Refused, is_public
from chat_proc.tools.web.resolver import NameResolver
from everturn.core.errors import Unavailable
from everturn.core.ids import TurnId

TURN = TurnId("turn_1")


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::200e"])
def test_addresses_of_the_open_internet_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1",
        "64:ff9b:1::1", "2002:7f00:1::", "2001::1", "2001:db8::1", "fe80::1", "fe80::1%eth0", "fc00::1",
        "fd00:ec2::254", "fec0::1", "ff02::1",
    ],
)  # fmt: skip
def test_private_metadata_mapped_and_reserved_addresses_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@given(st.ip_addresses(v=4))
def test_what_the_standard_library_calls_private_is_never_public(address: IPv4Address) -> None:
    assert not (is_public(address) and (not address.is_global or address.is_multicast))


@given(st.ip_addresses(v=6))
def test_in_six_nothing_is_public_that_the_standard_library_does_not_route(address: IPv6Address) -> None:
    assert not (is_public(address) and (not address.is_global or address.is_multicast or address.ipv4_mapped))


def guard_of(*answers: str) -> AddressGuard:
    async def resolve(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        return answers

    return AddressGuard(resolve)


async def test_every_address_of_a_host_is_checked() -> None:
    with pytest.raises(Refused, match="public internet"):
        await guard_of("8.8.8.8", "10.0.0.1").find_addresses("mixed.example", 443, TURN)


async def test_the_addresses_that_were_checked_are_given_once_and_not_too_many() -> None:
    answers = ["8.8.8.8", "8.8.8.8", *(f"9.9.9.{n}" for n in range(9))]

    found = await guard_of(*answers).find_addresses("many.example", 80, TURN)

    assert found[:2] == ("8.8.8.8", "9.9.9.0") and len(found) == MAX_ADDRESSES


@pytest.mark.parametrize("port", [22, 0, 8080, 5432])
async def test_other_ports_are_refused_before_anything_is_resolved(port: int) -> None:
    with pytest.raises(Refused, match="80 and 443"):
        await guard_of().find_addresses("a.example", port, TURN)


async def test_a_host_without_an_address_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await guard_of().find_addresses("nothing.example", 80, TURN)


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f.1", "2130706433", "0"])
async def test_addresses_of_this_machine_are_refused_in_any_spelling(host: str) -> None:
    with pytest.raises((Refused, Unavailable)):
        await AddressGuard(NameResolver().resolve).find_addresses(host, 80, TURN)


async def test_a_resolver_that_fails_is_unavailable() -> None:
    async def resolve(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        await asyncio.sleep(0)
        raise OSError("no such host")

    with pytest.raises(Unavailable, match="was not found"):
        await AddressGuard(resolve).find_addresses("gone.example", 80, TURN)
