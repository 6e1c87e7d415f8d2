"""Downloading files."""

import base64
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

Refused = Callable[..., dict[str, Any]]
CONTENT = bytes(f"name,sum\n{'x' * 1000}\n", "ascii")


@pytest.fixture
async def url(chat: Any) -> str:
    files = [{"filename": "grü\u202e<b>.csv", "data_base64": base64.b64encode(CONTENT).decode()}]
    sent = await chat.send("hello", attachments=files)
    return (await chat.state(sent["conversation_id"]))["turns"][0]["attachments"][0]["url"]


async def test_a_file_comes_whole_and_can_do_nothing_in_a_browser(client: httpx2.AsyncClient, url: str) -> None:
    answer = await client.get(url)

    assert answer.content == CONTENT
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox;")
    assert answer.headers["content-disposition"].startswith(
        "attachment; filename=\"gr_<b>.csv\"; filename*=UTF-8''gr%C3%BC"
    )
    assert answer.headers["content-length"] == str(len(CONTENT))


async def test_ranges(client: httpx2.AsyncClient, url: str, refused: Refused) -> None:
    middle = await client.get(url, headers={"Range": "bytes=5-7"})
    end = await client.get(url, headers={"Range": "bytes=-4"})
    changed = await client.get(url, headers={"Range": "bytes=5-7", "If-Range": '"other"'})
    outside = await client.get(url, headers={"Range": "bytes=99999-"})

    assert (middle.status_code, middle.content) == (206, CONTENT[5:8])
    assert middle.headers["content-range"] == f"bytes 5-7/{len(CONTENT)}"
    assert (end.status_code, end.content) == (206, CONTENT[-4:])
    assert (changed.status_code, changed.content) == (200, CONTENT)
    refused(outside, 416)
    assert outside.headers["content-range"] == f"bytes */{len(CONTENT)}"


async def test_a_copy_that_is_still_good_is_not_sent_again(client: httpx2.AsyncClient, url: str) -> None:
    first = await client.get(url)

    again = await client.get(url, headers={"If-None-Match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")


async def test_foreign_and_absent_files_are_the_same_404(
    client: httpx2.AsyncClient, url: str, refused: Refused
) -> None:
    base = url.rpartition("/")[0]
    names = ["art_01890a5d-ac96-774b-bcce-b302099a8057", "x", "..%2f..%2fetc%2fpasswd", "%252e%252e", "a%00"]

    foreign = refused(await client.get(url, headers={"X-Dev-User": "bob"}), 404)
    answers = [refused(await client.get(f"{base}/{name}"), 404) for name in names]

    assert all(answer["type"] == foreign["type"] for answer in answers)


async def test_a_download_can_be_asked_for(client: httpx2.AsyncClient, url: str) -> None:
    answer = await client.get(f"{url}?download")

    assert answer.headers["content-disposition"].startswith("attachment;")


async def test_head_returns_the_headers_of_get(client: httpx2.AsyncClient, url: str, refused: Refused) -> None:
    whole, got = await client.head(url), await client.get(url)
    part = await client.head(url, headers={"Range": "bytes=5-7"})
    same = await client.head(url, headers={"If-None-Match": whole.headers["etag"]})

    ignored = {"date", "ratelimit", "ratelimit-policy"}
    assert (whole.status_code, whole.content) == (200, b"")
    assert {name: value for name, value in whole.headers.items() if name not in ignored} == {
        name: value for name, value in got.headers.items() if name not in ignored
    }
    assert (part.status_code, part.headers["content-length"]) == (206, "3")
    assert same.status_code == 304
    assert (await client.head(url, headers={"X-Dev-User": "bob"})).status_code == 404
    assert (await client.head(url, headers={"Origin": "http://evil.example"})).status_code == 403


@pytest.mark.parametrize("ranges", ["bytes=0-1,4-5", "bytes=0-0, -1", "bytes=5-2", "lines=1-2", "bytes=a-b", ""])
async def test_several_or_invalid_ranges_get_the_whole_file(client: httpx2.AsyncClient, url: str, ranges: str) -> None:
    answer = await client.get(url, headers={"Range": ranges})

    assert (answer.status_code, answer.content) == (200, CONTENT)
