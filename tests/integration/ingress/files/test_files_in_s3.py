"""Files in a bucket: served, signed, and refused when the bucket is down or its content was altered (F18)."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from helpers.s3 import BUCKET, KEYS, S3Server, run_rclone

from everturn.files.objects import Objects
from everturn.files.s3 import open_s3
from everturn.lifecycle.orphans import SweepParts
from everturn.lifecycle.postgres_erasure import PostgresObjectRows
from everturn.postgres.pool import Database, open_database
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.core import FixedClock
from ingress.files.sweeping import run_sweep

Refused = Callable[..., dict[str, Any]]
SMALL, LARGE = b"name,sum\n" + b"x" * 1000 + b"\n", b"0123456789abcde\n" * 65_536
BASE = "/conversations/default/default"
STALL_S = "2"
STALL_LIMIT_S = 60
POLL_EVERY_S = 0.05


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with run_rclone(tmp_path_factory.mktemp("s3") / "root") as server:
        yield server


@pytest.fixture(scope="module")
def ingress(start_ingress: Any, s3: S3Server) -> Any:
    return start_ingress(OBJECTS_URL=s3.url("files", timeout=STALL_S), **KEYS)


@pytest.fixture
def objects(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """The bucket that the ingress uses."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return open_s3(s3.url("files"))


async def upload(chat: Any, data: bytes) -> dict[str, Any]:
    files = [{"filename": "a.csv", "data_base64": base64.b64encode(data).decode()}]
    sent = await chat.send("hello", attachments=files)
    turn = (await chat.state(sent["conversation_id"]))["turns"][0]
    return {"conversation_id": sent["conversation_id"], **turn["attachments"][0]}


async def alter(s3: S3Server, objects: Objects, file: dict[str, Any], data: bytes) -> None:
    """Change a stored object directly."""
    (stored,) = (await objects.load_page(f"{file['conversation_id']}/")).objects
    s3.client().put_object(Bucket=BUCKET, Key=f"files/{stored.key}", Body=data)


async def unread(client: httpx2.AsyncClient, reason: str) -> float:
    text = (await client.get("/metrics")).text
    found = re.search(rf'^ingress_unread_files_total{{reason="{reason}"}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
async def test_a_file_comes_back_whole_and_in_parts(client: httpx2.AsyncClient, chat: Any, data: bytes) -> None:
    url = (await upload(chat, data))["url"]

    whole = await client.get(url)
    middle = await client.get(url, headers={"Range": "bytes=100-199"})
    end = await client.get(url, headers={"Range": "bytes=-7"})

    assert (whole.status_code, whole.content) == (200, data)
    assert (middle.status_code, middle.content) == (206, data[100:200])
    assert (end.status_code, end.content) == (206, data[-7:])
    assert (await client.get("/readyz")).json()["parts"]["objects"] == {"ok": True, "detail": "S3"}


@pytest.mark.parametrize("change", [b"", SMALL[:-1], SMALL[:-2] + b"!\n", SMALL + b"more"])
async def test_an_altered_small_file_is_a_problem_and_counted(
    client: httpx2.AsyncClient, chat: Any, s3: S3Server, objects: Objects, refused: Refused, change: bytes
) -> None:
    file, before = await upload(chat, SMALL), await unread(client, "altered")
    await alter(s3, objects, file, change)

    problem = refused(await client.get(file["url"]), 502)

    assert problem["type"] == "urn:everturn:problem:altered"
    assert await unread(client, "altered") == before + 1


@pytest.mark.parametrize("change", [LARGE[:-1] + b"!", LARGE[:600_000], b"!" + LARGE[1:], b"!" + LARGE])
async def test_an_altered_large_file_never_arrives_whole(
    client: httpx2.AsyncClient, chat: Any, s3: S3Server, objects: Objects, change: bytes
) -> None:
    file, before = await upload(chat, LARGE), await unread(client, "altered")
    await alter(s3, objects, file, change)
    came = 0

    with pytest.raises(httpx2.RemoteProtocolError):
        async with client.stream("GET", file["url"]) as answer:
            async for chunk in answer.aiter_bytes():
                came += len(chunk)

    assert came < len(LARGE)
    assert await unread(client, "altered") == before + 1


async def test_a_missing_object_is_not_found(
    client: httpx2.AsyncClient, chat: Any, objects: Objects, refused: Refused
) -> None:
    file = await upload(chat, SMALL)
    await objects.delete([found.key for found in (await objects.load_page(f"{file['conversation_id']}/")).objects])

    refused(await client.get(file["url"]), 404)


async def test_files_are_refused_in_time_while_the_store_does_not_answer(
    client: httpx2.AsyncClient, chat: Any, s3: S3Server, refused: Refused
) -> None:
    file = await upload(chat, SMALL)
    count = len((await client.get(BASE)).json()["items"])
    attachment = {"filename": "b.csv", "data_base64": base64.b64encode(b"b,1\n").decode()}

    async with asyncio.timeout(STALL_LIMIT_S):
        with s3.stopped():
            sent, read, plain, unready = await asyncio.gather(
                client.post(f"{BASE}/new/messages", json={"text": "with a file", "attachments": [attachment]}),
                client.get(file["url"]),
                client.post(f"{BASE}/new/messages", json={"text": "without"}),
                wait_unready(client),
            )

    refused(sent, 503)
    refused(read, 503)
    assert unready["parts"]["objects"]["ok"] is False
    assert plain.status_code == 202
    assert len((await client.get(BASE)).json()["items"]) == count + 1
    assert (await client.get(file["url"])).content == SMALL


async def wait_unready(client: httpx2.AsyncClient) -> dict[str, Any]:
    """The parts in /readyz once it is not ready; answers are cached for a moment."""
    while (answer := await client.get("/readyz")).status_code == 200:  # noqa: ASYNC110 - another process reports this only when asked
        await asyncio.sleep(POLL_EVERY_S)
    assert answer.status_code == 503
    return answer.json()


async def test_what_an_erasure_could_not_delete_is_found_by_the_sweeper(
    client: httpx2.AsyncClient, chat: Any, s3: S3Server, objects: Objects, sweeper_rows: PostgresObjectRows
) -> None:
    erased, kept = await upload(chat, SMALL), await upload(chat, SMALL)
    with s3.stopped():
        answer = await client.delete(f"{BASE}/{erased['conversation_id']}")
    lines: list[dict[str, object]] = []
    later = FixedClock(datetime.now(UTC) + timedelta(hours=2))

    swept = await run_sweep(
        SweepParts(objects, sweeper_rows.load_orphans, later), prefix="", delete=True, report=lines.append
    )

    assert (answer.json()["objects"], answer.json()["objects_left"]) == (0, 1)
    assert swept.deleted == swept.orphans == len(lines)
    assert [line["deleted"] for line in lines if erased["conversation_id"] in str(line["key"])] == [True]
    assert not [line for line in lines if kept["conversation_id"] in str(line["key"])]
    assert (await client.get(kept["url"])).content == SMALL


@pytest.fixture
async def sweeper_rows(database: DatabaseUrls) -> AsyncIterator[PostgresObjectRows]:
    opened: Database
    async with open_database(database.ingress, pool_size=1, application_name="test-sweeper") as opened:
        yield PostgresObjectRows(opened)


async def test_where_it_is_set_so_clients_are_sent_to_the_bucket(
    start_ingress: Any, client: httpx2.AsyncClient, chat: Any, s3: S3Server, refused: Refused
) -> None:
    url = (await upload(chat, SMALL))["url"]
    redirecting = start_ingress(OBJECTS_URL=s3.url("files"), FILES_REDIRECT="1", **KEYS)

    async with httpx2.AsyncClient(base_url=redirecting.url, timeout=20) as http:
        sent = await http.get(url)
        head = await http.head(url)
        etag = head.headers["etag"]
        known = await http.get(url, headers={"If-None-Match": etag})
        foreign = await http.get(url, headers={"X-Dev-User": "bob"})
        page = await http.get(url, headers={"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"})
    async with httpx2.AsyncClient(timeout=20) as anybody:
        fetched = await anybody.get(sent.headers["location"])
        part = await anybody.get(sent.headers["location"], headers={"Range": "bytes=0-3"})
        bent = await anybody.get(sent.headers["location"].replace("attachment", "inline"))

    assert (sent.status_code, sent.headers["cache-control"]) == (307, "no-store")
    assert (page.status_code, page.content) == (200, SMALL), "a page may ask its own origin only"
    assert "X-Amz-Expires=60" in sent.headers["location"]
    assert not any(key in sent.headers["location"] for key in (KEYS["AWS_SECRET_ACCESS_KEY"],))
    assert fetched.content == SMALL
    assert fetched.headers["content-type"] == "text/csv; charset=utf-8"
    assert fetched.headers["content-disposition"] == 'attachment; filename="a.csv"'
    assert part.content == SMALL[:4]
    assert bent.status_code == 403
    assert (head.status_code, known.status_code) == (200, 304)
    refused(foreign, 404)
