"""Files of messages: caps, types, names, and refused messages leave nothing."""

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from uploads.hostile import BAD_UPLOADS
from uploads.images import image, png_chunk
from uploads.office import office
from uploads.pdfs import pdf, stream

from everturn.core.identity import Principal
from everturn.postgres.pool import Connection, open_database
from everturn.queue.model import WorkerPresence
from everturn.redis_drivers import open_redis_drivers

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]
PNG = image("png")
PDF = pdf()
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.fixture(scope="module")
def ingress(start_ingress: Callable[..., Any]) -> Any:
    """Takes files of every size as JSON, in which these tests send them."""
    return start_ingress({"heartbeat_s": 1})


def file(name: str, data: bytes, mime: str = "") -> dict[str, str]:
    return {"filename": name, "mime": mime, "data_base64": base64.b64encode(data).decode()}


def stored(env: dict[str, str]) -> int:
    return sum(path.is_file() for path in Path(urlsplit(env["OBJECTS_URL"]).path).rglob("*"))


def png_of_bytes(count: int) -> bytes:
    """A sound picture of so many bytes."""
    comment = png_chunk(b"tEXt", b"k\0" + b"x" * (count - len(PNG) - 14))
    return PNG[:33] + comment + PNG[33:]


def pdf_of_bytes(count: int) -> bytes:
    """A sound document of so many bytes."""
    around = len(pdf(stream(bytes(9_000_000)))) - 9_000_000
    document = pdf(stream(bytes(count - around)))
    assert len(document) == count
    return document


async def post(client: httpx2.AsyncClient, *files: dict[str, str], **headers: str) -> httpx2.Response:
    body = {"text": "see", "attachments": list(files)}
    return await client.post(f"{BASE}/new/messages", json=body, headers=headers)


async def post_parts(client: httpx2.AsyncClient, *files: tuple[str, bytes]) -> httpx2.Response:
    """As multipart, which has room for more than JSON."""
    message = ("message", (None, '{"text": "see"}', "application/json"))
    return await client.post(f"{BASE}/new/messages", files=[message, *(("files", (*file, "")) for file in files)])


async def test_files_of_all_accepted_families_are_kept_and_read_back(client: httpx2.AsyncClient, chat: Any) -> None:
    sent = {"a.csv": b"a,b\n1,2\n", "b.txt": "grüße".encode(), "c.png": PNG, "d.pdf": PDF, "e.docx": office()}

    answer = await post(client, *(file(name, data) for name, data in sent.items()))

    assert answer.status_code == 202, answer.text
    kept = (await chat.state(answer.json()["conversation_id"]))["turns"][0]["attachments"]
    assert [item["filename"] for item in kept] == list(sent)
    assert [item["mime"] for item in kept] == ["text/csv", "text/plain", "image/png", "application/pdf", DOCX]
    for item in kept:
        assert (await client.get(item["url"])).content == sent[item["filename"]]
        assert item["rn"].startswith("ef:default:default:chatbot:upload:dev:conv_")


TEXTS: dict[str, tuple[bytes, str, str]] = {
    "page.html": (b"<!DOCTYPE html><html><script>alert(1)</script></html>", "text/html", "text/plain; charset=utf-8"),
    "logo.svg": (b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", "image/svg+xml", ""),
    "feed.xml": (b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY x 'ha'>]><a>&x;</a>", "application/xml", ""),
    "server.log.1": (b"started\n", "", ""),
    "letter.eml": (b"From: a@example.org\nSubject: x\n\nwords\n", "message/rfc822", ""),
    "excel.csv": ("Straße;Größe\n".encode("cp1252"), "text/csv", "text/csv; charset=windows-1252"),
    "unicode.txt": ("Name\tGröße\n".encode("utf-16"), "text/plain", "text/plain; charset=utf-16le"),
    "japanese.txt": ("これは日本語です。".encode("cp932"), "text/plain", "text/plain; charset=shift_jis"),
}


async def test_texts_are_stored_as_sent_and_never_served_as_active_content(
    client: httpx2.AsyncClient, chat: Any
) -> None:
    answer = await post(client, *(file(name, data, declared) for name, (data, declared, _) in TEXTS.items()))

    assert answer.status_code == 202, answer.text
    assert "file_notices" not in answer.json()["receipt"]
    kept = (await chat.state(answer.json()["conversation_id"]))["turns"][0]["attachments"]
    for item, (name, (data, _, served)) in zip(kept, TEXTS.items(), strict=True):
        got = await client.get(item["url"])
        assert (item["filename"], got.content) == (name, data)
        assert got.headers["content-type"] == served or not served
        assert got.headers["content-type"].startswith(("text/plain", "text/csv"))
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["content-security-policy"].startswith("sandbox;")
        if name.endswith((".html", ".svg", ".xml", ".eml")):
            assert got.headers["content-disposition"].startswith("attachment;")


async def test_what_is_stored_otherwise_than_it_was_sent_is_said_in_the_receipt(
    client: httpx2.AsyncClient, chat: Any
) -> None:
    motion_photo = image("jpeg") + b"\0\0\0\x18ftypmp42" + bytes(range(256)) * 9
    wrong_startxref = PDF.replace(b"startxref\n", b"startxref\n9")

    answer = await post(client, file("a.jpg", motion_photo), file("b.pdf", wrong_startxref), file("c.pdf", PDF))

    assert answer.status_code == 202, answer.text
    assert answer.json()["receipt"]["file_notices"] == [
        "The file 'a.jpg' was changed: 2316 bytes after the end of the picture were removed.",
        "The file 'b.pdf' was changed: Its structure was damaged and has been rebuilt.",
    ]
    kept = (await chat.state(answer.json()["conversation_id"]))["turns"][0]["attachments"]
    assert (await client.get(kept[0]["url"])).content == image("jpeg")
    assert (await client.get(kept[1]["url"])).content.startswith(b"%PDF-")
    assert (await client.get(kept[2]["url"])).content == PDF


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (file("x.txt", b""), 422),
        (file("x.zip", b"PK\x05\x06" + b"\x00" * 18), 415),
        (file("x.png", b"no image"), 415),
        (file("x.csv", PNG), 415),
        (file("x.txt", bytes(range(1, 256))), 422),
        (file("x.png", png_of_bytes(5_000_001)), 413),
    ],
)
async def test_one_bad_file_refuses_the_message_by_name_and_leaves_nothing(
    client: httpx2.AsyncClient, refused: Refused, untouched: None, bad: dict[str, str], status: int
) -> None:
    answer = await post(client, file("good.csv", b"a,b\n"), bad)

    body = refused(answer, status)
    assert bad["filename"] in body["detail"]
    assert [error["field"] for error in body["errors"]] == ["body.attachments.1"]


@pytest.mark.parametrize("case", BAD_UPLOADS)
async def test_a_bad_upload_is_refused_and_leaves_nothing(
    client: httpx2.AsyncClient, refused: Refused, untouched: None, case: str
) -> None:
    name, data, status = BAD_UPLOADS[case]
    parts = [("message", (None, '{"text": "see"}', "application/json")), ("files", ("good.csv", b"a,b\n", "text/csv"))]

    answer = await client.post(f"{BASE}/new/messages", files=[*parts, ("files", (name, data, ""))])

    body = refused(answer, status)
    assert body["detail"].startswith(f"The file {name!r} was rejected: ")
    assert body["errors"] == [{"field": "files.1", "message": body["detail"]}]


async def test_files_at_their_caps_are_taken(client: httpx2.AsyncClient) -> None:
    answer = await post_parts(client, ("x.png", png_of_bytes(5_000_000)), ("x.txt", b"x" * 10_000_000))
    other = await post_parts(client, ("x.pdf", pdf_of_bytes(10_000_000)))

    assert (answer.status_code, other.status_code) == (202, 202), answer.text + other.text


@pytest.mark.parametrize(
    ("name", "data"),
    [("x.pdf", pdf_of_bytes(10_000_001)), ("x.txt", b"x" * 10_000_001), ("x.png", png_of_bytes(5_000_001))],
)
async def test_a_file_above_its_cap_is_refused_by_name(
    client: httpx2.AsyncClient, refused: Refused, untouched: None, name: str, data: bytes
) -> None:
    answer = await post_parts(client, ("good.csv", b"a,b\n"), (name, data))

    body = refused(answer, 413)
    assert name in body["detail"]
    assert [error["field"] for error in body["errors"]] == ["files.1"]


async def test_the_limits_of_a_message_can_be_asked_for_before_an_upload(
    client: httpx2.AsyncClient, start_ingress: Any, refused: Refused
) -> None:
    default = (await client.get("/limits/default/default")).json()
    types = default.pop("file_types")
    changed = start_ingress({"message_files": 3}, MODALITY_MAX_IMAGE_BYTES="1000", MESSAGE_MAX_BYTES="2000000")
    async with httpx2.AsyncClient(base_url=changed.url, timeout=20) as other:
        limits = (await other.get("/limits/default/default")).json()
        changed_types = {each["media_type"]: each["max_bytes"] for each in limits.pop("file_types")}
        refusal = refused(await post(other, file("x.png", png_of_bytes(limits["image_bytes"] + 1))), 413)

    assert default == {
        "message_bytes": 25_000_000,
        "json_bytes": 8_000_000,
        "text_chars": 1_000_000,
        "files": 20,
        "image_bytes": 5_000_000,
        "document_bytes": 10_000_000,
        "text_bytes": 10_000_000,
        "image_pixels": 100_000_000,
        "zeros_in_text": ["", ".csv", ".log", ".markdown", ".md", ".tsv", ".txt"],
        "pending_signals": 64,
        "event_streams": 32,
        "running_turns": None,
    }
    assert {(each["family"], *each["extensions"]) for each in types} == {
        ("image", ".jfif", ".jpe", ".jpeg", ".jpg"),
        ("image", ".png"),
        ("image", ".gif"),
        ("image", ".webp"),
        ("document", ".pdf"),
        ("document", ".docx"),
        ("document", ".pptx"),
        ("document", ".xlsx"),
        ("text",),
    }
    assert (changed_types["image/png"], changed_types["text/plain"]) == (1000, 10_000_000)
    assert limits == default | {"files": 3, "image_bytes": 1000, "message_bytes": 2_000_000, "json_bytes": 2_000_000}
    assert "1000 bytes" in refusal["detail"]


async def test_limits_tell_how_many_turns_of_a_user_run_by_the_strictest_worker(
    client: httpx2.AsyncClient, redis_url: str
) -> None:
    workers = [
        WorkerPresence("a", "", None, 4, user_running_max=5),
        WorkerPresence("b", "", None, 4, user_running_max=2),
    ]
    workers.append(WorkerPresence("of-a-version-without-it", "", None, 4))

    async def load_running_turns() -> int | None:
        return (await client.get("/limits/default/default")).json()["running_turns"]

    async with open_redis_drivers(redis_url, name="limits") as redis_drivers, asyncio.timeout(20):
        for worker in workers:
            await redis_drivers.presences.save(worker, ttl_s=60)
        while (most := await load_running_turns()) is None:  # noqa: ASYNC110 - what an ingress knows of workers may be a second old
            await asyncio.sleep(0.1)
        for worker in workers:
            await redis_drivers.presences.save(worker, ttl_s=0.001)
        while await load_running_turns() is not None:  # noqa: ASYNC110 - other tests count the workers of this ingress
            await asyncio.sleep(0.1)

    assert most == 2


async def test_a_message_above_its_cap_is_413(client: httpx2.AsyncClient, refused: Refused) -> None:
    message = ("message", (None, json.dumps({"text": "a"}), "application/json"))
    files = [("files", (f"{n}.txt", b"x" * 9_000_000, "text/plain")) for n in range(3)]

    refused(await client.post(f"{BASE}/new/messages", files=[message, *files]), 413)
    refused(await post(client, *(file(f"{n}.txt", b"x") for n in range(21))), 413)


async def test_a_message_to_an_absent_conversation_leaves_no_object(
    client: httpx2.AsyncClient, refused: Refused, ingress_env: dict[str, str]
) -> None:
    before = stored(ingress_env)
    absent = f"{BASE}/conv_01890a5d-ac96-774b-bcce-b302099a8057/messages"

    refused(await client.post(absent, json={"text": "a", "attachments": [file("a.csv", b"a,b\n")]}), 404)

    assert stored(ingress_env) == before


async def test_a_refused_message_does_not_take_the_objects_of_another_along(
    client: httpx2.AsyncClient, chat: Any, refused: Refused
) -> None:
    sent = await chat.send("see", attachments=[file("a.csv", b"shared,1\n")])
    body = {"text": "b", "attachments": [file("b.csv", b"shared,1\n")], "target_turn_id": _other_turn()}

    refused(await client.post(f"{BASE}/{sent['conversation_id']}/messages", json=body), 409)

    kept = (await chat.state(sent["conversation_id"]))["turns"][0]["attachments"][0]
    assert (await client.get(kept["url"])).content == b"shared,1\n"


async def test_equal_messages_under_one_key_keep_one_set_of_objects(
    client: httpx2.AsyncClient, ingress_env: dict[str, str]
) -> None:
    before = stored(ingress_env)

    answers = await asyncio.gather(
        *(post(client, file("a.csv", b"keyed,1\n"), **{"Idempotency-Key": "files"}) for _ in range(8))
    )

    assert len({answer.text for answer in answers}) == 1
    assert stored(ingress_env) == before + 1
    other = await post(client, file("a.csv", b"keyed,2\n"), **{"Idempotency-Key": "files"})
    assert other.status_code == 422
    assert stored(ingress_env) == before + 1


async def test_a_refused_message_keeps_objects_that_another_node_is_committing(
    client: httpx2.AsyncClient, chat: Any, start_ingress: Any, database: Any, refused: Refused
) -> None:
    conversation = (await chat.send("first"))["conversation_id"]
    messages, body = f"{BASE}/{conversation}/messages", {"text": "b", "attachments": [file("b.csv", b"raced,1\n")]}
    await client.post(messages, json={"text": "other"}, headers={"Idempotency-Key": "used"})

    async with (
        open_database(database.ingress, pool_size=1, application_name="holder") as holder,
        httpx2.AsyncClient(base_url=start_ingress().url, timeout=20) as other_node,
    ):
        # The first message with a file loads what later ones find; a lock is waited for 2 s only.
        refused(await other_node.post(messages, json=body, headers={"Idempotency-Key": "used"}), 422)
        async with holder.transaction(Principal("default", "default", "dev")) as held:
            await held.fetchval("SELECT id FROM conversation WHERE id = $1 FOR UPDATE", conversation)
            committing = asyncio.create_task(client.post(messages, json=body))
            await _blocked(held)
            # The key was used for another message, so this is refused when its object is stored already.
            refused(await other_node.post(messages, json=body, headers={"Idempotency-Key": "used"}), 422)
        accepted = await committing

    assert accepted.status_code == 202, accepted.text
    signals = (await chat.state(conversation))["turns"][0]["signals"]
    (kept,) = [one["attachments"][0] for one in signals if one["attachments"]]
    assert (await client.get(kept["url"])).content == b"raced,1\n"


async def _blocked(held: Connection) -> None:
    """Returns when another transaction waits for what this one holds."""
    waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
    async with asyncio.timeout(20):
        while not await held.fetchval(waits):  # noqa: ASYNC110 - another process's wait has no event here
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("../../etc/passwd.txt", "passwd.txt"),
        ("a\x01\u202eb.txt", "ab.txt"),
        ("x" * 300 + ".txt", "x" * 251 + ".txt"),
        ("..", "file"),
    ],
)
async def test_names_are_cleaned(client: httpx2.AsyncClient, chat: Any, raw: str, kept: str) -> None:
    answer = await post(client, file(raw, b"words\n"))

    assert answer.status_code == 202, answer.text
    (item,) = (await chat.state(answer.json()["conversation_id"]))["turns"][0]["attachments"]
    assert item["filename"] == kept


def _other_turn() -> str:
    return "turn_01890a5d-ac96-774b-bcce-b302099a8057"
