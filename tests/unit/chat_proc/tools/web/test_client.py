import asyncio
import gzip
import ssl
import zlib
from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_proc.tools.web.client import MAX_REDIRECTS, AddressGuard, Refused, WebClient, is_public
from everturn.core.errors import EverturnError, Invalid, Unavailable
from everturn.core.ids import TurnId
from everturn_testing.web_site import Answer, Site

TURN = TurnId("turn_1")

LOCAL = ip_address("127.0.0.1")
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def test_a_page_comes_with_its_type_and_its_bytes(site: Site, guard: AddressGuard) -> None:
    url = site.page("/a", "Hällo", "text/plain; charset=ISO-8859-1")

    page = await WebClient(guard).fetch(url + "#part", TURN)

    assert (page.url, page.mime, page.charset, page.cut) == (url, "text/plain", "iso-8859-1", False)
    assert page.body.decode() == "Hällo"
    assert "Host: site.test" in site.asked[0] and "cookie" not in site.asked[0].lower()


async def test_redirects_are_followed_and_checked_one_by_one(site: Site, guard: AddressGuard) -> None:
    site.page("/end", "here", "text/plain")
    site.redirect("/2", "/end")

    page = await WebClient(guard).fetch(site.redirect("/1", "2"), TURN)

    assert (page.url, page.body) == (site.url("/end"), b"here")


async def test_more_than_five_redirects_are_too_many(site: Site, guard: AddressGuard) -> None:
    with pytest.raises(Invalid, match=f"more than {MAX_REDIRECTS} times"):
        await WebClient(guard).fetch(site.redirect("/loop", "/loop"), TURN)

    assert len(site.asked) == MAX_REDIRECTS + 1


@pytest.mark.parametrize(
    "target",
    ["http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[::1]/", "http://[::ffff:10.0.0.1]/",
     "http://a.example:22/", "file:///etc/passwd", "ftp://a.example/", "http://user:secret@site.test/"],
)  # fmt: skip
async def test_a_redirect_to_a_forbidden_address_is_refused(site: Site, guard: AddressGuard, target: str) -> None:
    url = site.redirect("/out", target)

    with pytest.raises(Invalid):
        await WebClient(guard).fetch(url, TURN)

    assert len(site.asked) == 1


@pytest.mark.parametrize("target", ["http://[half", "//["])
async def test_a_redirect_to_an_invalid_address_is_an_error(site: Site, guard: AddressGuard, target: str) -> None:
    with pytest.raises(Unavailable, match="not an address"):
        await WebClient(guard).fetch(site.redirect("/out", target), TURN)


async def test_a_redirect_to_a_long_address_is_an_error(site: Site, guard: AddressGuard) -> None:
    """93 KB of a character that took 70 us each to be spelled in ASCII."""
    with pytest.raises(Unavailable, match="an address of 31007 characters"):
        await WebClient(guard).fetch(site.redirect("/out", "http://" + "\ufdfa" * 31_000), TURN)


async def test_a_redirect_to_a_host_that_the_operator_denies_is_refused(site: Site, guard: AddressGuard) -> None:
    client = WebClient(guard, is_denied=lambda host: host == "bad.test")

    with pytest.raises(Refused, match="does not allow"):
        await client.fetch(site.redirect("/out", "http://bad.test/"), TURN)


async def test_a_long_content_type_is_not_looked_through(site: Site, guard: AddressGuard) -> None:
    """The library's time for it grows with the square of its length: 50,000 characters took 5 s."""
    page = await WebClient(guard).fetch(site.page("/a", "x", 'text/plain; x="' + ";" * 50_000), TURN)

    assert page.mime == "text/plain"


async def test_a_page_that_unpacks_in_many_parts_is_whole(site: Site, guard: AddressGuard) -> None:
    whole = b"0123456789" * 300_000

    page = await WebClient(guard).fetch(
        site.page("/a", gzip.compress(whole), "text/plain", **{"Content-Encoding": "gzip"}), TURN
    )

    assert (page.body == whole, page.cut) == (True, False)


async def test_a_type_whose_charset_cannot_be_read_has_none(site: Site, guard: AddressGuard) -> None:
    page = await WebClient(guard).fetch(site.page("/a", "x", "text/plain; charset*=a%00b''x"), TURN)

    assert (page.mime, page.charset) == ("text/plain", None)


async def test_a_name_that_means_another_address_a_moment_later_does_not_get_in(site: Site) -> None:
    """The first answer is public, the second private: only what was checked is connected to."""
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])
    resolved: list[str] = []

    async def resolve(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        resolved.append(host)
        return next(answers)

    guard = AddressGuard(resolve, is_allowed=lambda address: address == LOCAL or is_public(address), ports={site.port})
    site.page("/a", "public", "text/plain")

    page = await WebClient(guard).fetch(site.url("/a"), TURN)
    with pytest.raises(Refused):
        await WebClient(guard).fetch(site.url("/a"), TURN)

    assert page.body == b"public"
    assert resolved == ["site.test", "site.test"]
    assert len(site.asked) == 1


async def test_a_redirect_to_the_same_name_is_resolved_and_checked_again(site: Site) -> None:
    answers = iter([["127.0.0.1"], ["192.168.0.1"]])

    async def resolve(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        return next(answers)

    guard = AddressGuard(resolve, is_allowed=lambda address: address == LOCAL, ports={site.port})

    with pytest.raises(Refused):
        await WebClient(guard).fetch(site.redirect("/1", "/2"), TURN)

    assert len(site.asked) == 1


async def test_the_first_address_that_answers_is_taken(site: Site) -> None:
    async def resolve(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.1"]

    guard = AddressGuard(
        resolve, is_allowed=lambda address: address in {LOCAL, ip_address("127.0.0.2")}, ports={site.port}
    )
    site.page("/a", "x", "text/plain")

    assert (await WebClient(guard).fetch(site.url("/a"), TURN)).body == b"x"


async def test_a_long_page_is_cut_at_the_cap(site: Site, guard: AddressGuard) -> None:
    page = await WebClient(guard, max_body_bytes=1000).fetch(site.page("/long", "x" * 5000, "text/plain"), TURN)

    assert (len(page.body), page.cut) == (1000, True)


async def test_a_small_page_that_unpacks_to_a_huge_one_is_cut_at_the_cap(site: Site, guard: AddressGuard) -> None:
    bomb = gzip.compress(b"x" * 20_000_000)
    url = site.page("/bomb", bomb, "text/plain", **{"Content-Encoding": "gzip"})

    page = await WebClient(guard, max_body_bytes=10_000).fetch(url, TURN)

    assert (len(page.body), page.cut) == (10_000, True)


@pytest.mark.parametrize("packed", [gzip.compress(b"hello"), zlib.compress(b"hello")])
async def test_a_packed_page_is_unpacked(site: Site, guard: AddressGuard, packed: bytes) -> None:
    url = site.page("/p", packed, "text/plain", **{"Content-Encoding": "gzip"})

    assert (await WebClient(guard).fetch(url, TURN)).body == b"hello"


async def test_bytes_after_the_end_of_a_packed_page_are_not_read(site: Site, guard: AddressGuard) -> None:
    headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
    site.pages["/p"] = Answer(gzip.compress(b"hello"), headers=headers, repeats=b"x" * 65_536)

    page = await WebClient(guard, timeout_s=5.0).fetch(site.url("/p"), TURN)

    assert (page.body, page.cut) == (b"hello", False)


@pytest.mark.parametrize(("encoding", "body"), [("br", b"x"), ("gzip", b"this is not packed")])
async def test_an_unsupported_compression_is_an_error(
    site: Site, guard: AddressGuard, encoding: str, body: bytes
) -> None:
    url = site.page("/p", body, "text/plain", **{"Content-Encoding": encoding})

    with pytest.raises(Unavailable, match="compressed"):
        await WebClient(guard).fetch(url, TURN)


async def test_a_page_that_never_ends_is_given_up(site: Site, guard: AddressGuard) -> None:
    site.pages["/slow"] = Answer(b"some", stalls=True)

    with pytest.raises(Unavailable, match=r"within 0\.2 s"):
        await WebClient(guard, timeout_s=0.2).fetch(site.url("/slow"), TURN)


async def test_a_cancelled_fetch_stops_at_once(site: Site, guard: AddressGuard) -> None:
    site.pages["/slow"] = Answer(b"some", stalls=True)
    fetching = asyncio.create_task(WebClient(guard).fetch(site.url("/slow"), TURN))
    await site.was_asked.wait()

    fetching.cancel()

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(6):
            await fetching


@pytest.mark.parametrize("url", ["", "not an address", "http://", "javascript:alert(1)", "http://site.test:99999/"])
async def test_an_invalid_address_is_refused(guard: AddressGuard, url: str) -> None:
    with pytest.raises(EverturnError):
        await WebClient(guard).fetch(url, TURN)


async def test_an_error_status_is_reported(site: Site, guard: AddressGuard) -> None:
    with pytest.raises(Unavailable, match="404"):
        await WebClient(guard).fetch(site.url("/missing"), TURN)


async def test_a_server_that_is_not_there_is_unavailable(guard: AddressGuard, site: Site) -> None:
    nobody = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = nobody.sockets[0].getsockname()[1]
    nobody.close()
    await nobody.wait_closed()

    async def resolve(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        return ["127.0.0.1"]

    alone = AddressGuard(resolve, is_allowed=lambda address: True, ports={port})
    with pytest.raises(Unavailable, match="connection failed"):
        await WebClient(alone).fetch(f"http://gone.test:{port}/", TURN)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/grüße?q=ü b", "/gr%C3%BC%C3%9Fe?q=%C3%BC%20b"),
        ("/a%20b?x=%C3%BC&y=1,2", "/a%20b?x=%C3%BC&y=1,2"),
        ("/x\\y", "/x%5Cy"),
        ("?only=query", "/?only=query"),
    ],
)
async def test_an_address_is_asked_for_in_ascii(site: Site, guard: AddressGuard, path: str, asked: str) -> None:
    site.page(asked.partition("?")[0], "found", "text/plain")

    page = await WebClient(guard).fetch(site.url(path), TURN)

    assert page.body == b"found"
    assert site.asked[0].startswith(f"GET {asked} HTTP/1.1")


async def test_a_redirect_in_letters_of_its_own_is_followed(site: Site, guard: AddressGuard) -> None:
    site.page("/gr%C3%BC%C3%9Fe", "found", "text/plain")

    assert (await WebClient(guard).fetch(site.redirect("/1", "/grüße"), TURN)).body == b"found"


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=40)
    | st.text(max_size=30).map(lambda text: f"http://{text}")
    | st.text(max_size=30).map(lambda text: f"http://a.example/{text}")
)
def test_any_invalid_address_is_refused_with_our_message(text: str) -> None:
    async def resolve(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        return ["10.0.0.1"]

    with pytest.raises(EverturnError):
        asyncio.run(WebClient(AddressGuard(resolve), ssl_context=NO_TLS).fetch(text, TURN))
