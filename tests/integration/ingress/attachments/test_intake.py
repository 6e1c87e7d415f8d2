"""Files of messages: caps, types, names, and that a refused message leaves nothing."""

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from uploads.images import gif_and_script, image, png_chunk, png_of
from uploads.office import office, override, relation
from uploads.pdfs import encrypted_pdf, flate_zeros, object_stream_bomb, pdf, stream
from uploads.zips import End, Member, bomb, build_zip

from everturn.model.identity import Principal
from everturn.postgres.database import Connection, open_database

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]
PNG = image("png")
PDF = pdf()
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.fixture(scope="module")
def ingress(start_ingress: Callable[..., Any]) -> Any:
    """Takes files of every size as JSON, in which these tests send them."""
    return start_ingress(STREAM_HEARTBEAT_S="1", JSON_MAX_BYTES="25000000")


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


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (file("x.txt", b""), 422),
        (file("x.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"), 415),
        (file("x.html", b"<html></html>", "text/html"), 415),
        (file("x.zip", b"PK\x05\x06" + b"\x00" * 18), 415),
        (file("x.png", b"no image"), 415),
        (file("x.csv", PNG), 415),
        (file("x.txt", b"caf\xe9"), 422),
        (file("x.png", png_of_bytes(5_000_001)), 413),
        (file("x.pdf", pdf_of_bytes(10_000_001)), 413),
        (file("x.txt", b"x" * 10_000_001), 413),
    ],
)
async def test_one_bad_file_refuses_the_message_by_name_and_leaves_nothing(
    client: httpx2.AsyncClient, refused: Refused, untouched: None, bad: dict[str, str], status: int
) -> None:
    answer = await post(client, file("good.csv", b"a,b\n"), bad)

    body = refused(answer, status)
    assert bad["filename"] in body["detail"]
    assert [error["field"] for error in body["errors"]] == ["body.attachments.1"]


A, OLE = Member("a.xml", b"<a/>"), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
WORD_MACROS = "application/vnd.ms-word.document.macroEnabled.main+xml"
SHEET_MACROS = "application/vnd.ms-excel.sheet.macroEnabled.main+xml"
XXE = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
LAUGHS = b'<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;">]><a>&y;</a>'
BAD_UPLOADS: dict[str, tuple[str, bytes, int]] = {
    "gif and program": ("a.gif", gif_and_script(), 422),
    "gif with a tail": ("a.gif", image("gif") + b"=1;alert(1)", 422),
    "pdf and zip": ("a.pdf", pdf() + build_zip([A]), 422),
    "png and zip": ("a.png", image("png") + build_zip([A]), 422),
    "generic zip": ("a.zip", build_zip([A]), 415),
    "zip as docx": ("a.docx", build_zip([A]), 422),
    "docx as xlsx": ("a.xlsx", office("docx"), 422),
    "docx as png": ("a.png", office("docx"), 415),
    "docm": ("a.docm", office("docx", main_type=WORD_MACROS), 415),
    "docm renamed": ("a.docx", office("docx", main_type=WORD_MACROS), 422),
    "xlsm": ("a.xlsm", office("xlsx", main_type=SHEET_MACROS), 415),
    "xlsm renamed": ("a.xlsx", office("xlsx", main_type=SHEET_MACROS), 422),
    "macros": ("a.docx", office("docx", Member("word/vbaProject.bin", b"x")), 422),
    "xlm": ("a.xlsx", office("xlsx", types=[override("m.xml", "application/vnd.ms-excel.macrosheet+xml")]), 422),
    "ole": ("a.docx", office("docx", Member("word/embeddings/a.bin", OLE)), 422),
    "old office": ("a.docx", OLE + bytes(600), 415),
    "encrypted office": ("a.docx", OLE + bytes(600) + "EncryptedPackage".encode("utf-16-le"), 422),
    "outside": ("a.docx", office(links=[relation("image", "http://x/a.png", external=True)]), 422),
    "pdf with a script": ("a.pdf", pdf(catalog=b"/OpenAction<</S/JavaScript/JS(1)>>"), 422),
    "pdf that starts": ("a.pdf", pdf(catalog=b"/OpenAction<</S/Launch/F(a)>>"), 422),
    "pdf that carries": ("a.pdf", pdf(stream(b"x", b"/Type/EmbeddedFile")), 422),
    "pdf bomb": ("a.pdf", pdf(flate_zeros(121 * 2**20)), 422),
    "object stream bomb": ("a.pdf", object_stream_bomb(100 * 2**20), 422),
    "501 pages": ("a.pdf", pdf(pages=501), 422),
    "encrypted pdf": ("a.pdf", encrypted_pdf(), 422),
    "pdf cut off": ("a.pdf", pdf()[:-40], 422),
    "overlap": ("a.docx", office("docx", A, Member("b.xml", A.data, local_name="a.xml", at=0)), 422),
    "nested": ("a.docx", office("docx", Member("word/a.bin", build_zip([A]))), 422),
    "ratio": ("a.docx", office("docx", bomb("word/a.bin", 100_000_000)), 422),
    "false directory": ("a.docx", office("docx", end=End(count=1)), 422),
    "100,000 members": ("a.docx", build_zip([Member(f"{n}", method=0) for n in range(100_000)], End(count=9)), 422),
    "slip": ("a.docx", office("docx", Member("../../etc/cron.d/x", b"x")), 422),
    "symlink": ("a.docx", office("docx", Member("word/a", b"/etc/passwd", mode=0o120777)), 422),
    "two of one name": ("a.docx", office("docx", A, A), 422),
    "50k png": ("a.png", png_of(50_000, 50_000), 422),
    "svg with a script": ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", 415),
    "svg as text": ("a.txt", b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>", 415),
    "html": ("a.html", b"<!DOCTYPE html><html><body>x</body></html>", 415),
    "rtf as text": ("a.txt", b"{\\rtf1\\ansi words}", 415),
    "xxe": ("a.docx", office("docx", body=XXE), 422),
    "billion laughs": ("a.docx", office("docx", Member("word/a.xml", LAUGHS)), 422),
    "empty": ("a.docx", b"", 422),
}


@pytest.mark.parametrize("case", BAD_UPLOADS)
async def test_a_bad_upload_is_refused_and_leaves_nothing(
    client: httpx2.AsyncClient, refused: Refused, untouched: None, case: str
) -> None:
    name, data, status = BAD_UPLOADS[case]
    parts = [("message", (None, '{"text": "see"}', "application/json")), ("files", ("good.csv", b"a,b\n", "text/csv"))]

    answer = await client.post(f"{BASE}/new/messages", files=[*parts, ("files", (name, data, ""))])

    body = refused(answer, status)
    assert body["detail"].startswith(f"The file {name!r} is refused: ")
    assert body["errors"] == [{"field": "files.1", "message": body["detail"]}]


async def test_files_at_their_caps_are_taken(client: httpx2.AsyncClient) -> None:
    answer = await post(client, file("x.png", png_of_bytes(5_000_000)), file("x.txt", b"x" * 10_000_000))
    other = await post(client, file("x.pdf", pdf_of_bytes(10_000_000)))

    assert (answer.status_code, other.status_code) == (202, 202), answer.text + other.text


async def test_the_limits_of_a_message_can_be_asked_for_before_an_upload(
    client: httpx2.AsyncClient, start_ingress: Any, refused: Refused
) -> None:
    default = (await client.get("/limits/default/default")).json()
    changed = start_ingress(MESSAGE_MAX_FILES="3", MODALITY_MAX_IMAGE_BYTES="1000", MESSAGE_MAX_BYTES="2000000")
    async with httpx2.AsyncClient(base_url=changed.url, timeout=20) as other:
        limits = (await other.get("/limits/default/default")).json()
        refusal = refused(await post(other, file("x.png", png_of_bytes(limits["image_bytes"] + 1))), 413)

    assert default == {
        "message_bytes": 25_000_000,
        "text_chars": 1_000_000,
        "files": 20,
        "image_bytes": 5_000_000,
        "document_bytes": 10_000_000,
        "text_bytes": 10_000_000,
    }
    assert limits == default | {"files": 3, "image_bytes": 1000, "message_bytes": 2_000_000}
    assert "1000 bytes" in refusal["detail"]


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


async def test_a_refused_message_on_one_node_leaves_the_object_that_another_node_is_committing(
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
