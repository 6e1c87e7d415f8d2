"""Large bodies: which are accepted as JSON, which must be multipart, and that neither blocks the process."""

import asyncio
import base64
import json
import time
from typing import Any

import httpx2
import pytest

BASE = "/conversations/default/default"
JSON_MAX_BYTES = 8_000_000
ESCAPED = b'{"text":"' + b"\\u0041" * 1_300_000 + b'"}'


async def test_json_above_its_cap_is_refused_and_the_problem_names_multipart(client: Any, refused: Any) -> None:
    answer = await client.post(f"{BASE}/new/messages", content=b" " * JSON_MAX_BYTES + b"{}", headers=JSON)

    assert "multipart/form-data" in refused(answer, 413)["detail"]


async def test_the_json_part_of_a_multipart_message_has_the_same_cap(client: Any, refused: Any) -> None:
    files = {"message": (None, b" " * JSON_MAX_BYTES + b"{}", "application/json")}

    refused(await client.post(f"{BASE}/new/messages", files=files), 413)


@pytest.mark.parametrize("ascii_only", [True, False])
async def test_the_longest_text_is_stored_as_it_was_sent_in_either_spelling(
    client: Any, chat: Any, ascii_only: bool
) -> None:
    text = "Я" * 999_998 + "\U0001f600"
    body = json.dumps({"text": text}, ensure_ascii=ascii_only).encode()

    answer = await client.post(f"{BASE}/new/messages", content=body, headers=JSON)

    assert answer.status_code == 202, answer.text
    assert (await chat.state(answer.json()["conversation_id"]))["turns"][0]["text"] == text


async def test_a_large_file_in_base64_is_stored_byte_for_byte(client: Any, chat: Any) -> None:
    data = b"".join(b"%d,some text\n" % n for n in range(300_000))
    attachment = {"filename": "a.csv", "data_base64": base64.b64encode(data).decode()}

    accepted = await chat.send("", attachments=[attachment])

    [file] = (await chat.state(accepted["conversation_id"]))["turns"][0]["attachments"]
    assert (await client.get(file["url"])).content == data


async def test_padding_inside_of_base64_is_refused(client: Any, refused: Any) -> None:
    text = ("A" * 262_142 + "==") + "QUJD"

    answer = await client.post(
        f"{BASE}/new/messages", json={"text": "", "attachments": [{"filename": "a.txt", "data_base64": text}]}
    )

    assert refused(answer, 422)["errors"][0]["field"] == "body.attachments.0.data_base64"


async def test_a_large_body_does_not_hold_up_other_requests(ingress: Any) -> None:
    """A body of 8 MB in the form that is slowest to parse, with concurrent requests."""
    async with httpx2.AsyncClient(base_url=ingress.url, timeout=60) as http:
        waits: list[float] = []
        done = asyncio.Event()

        async def ask() -> None:
            while not done.is_set():
                began = time.perf_counter()
                await http.get("/livez")
                waits.append(time.perf_counter() - began)

        asking = asyncio.create_task(ask())
        began = time.perf_counter()
        answer = await http.post(f"{BASE}/new/messages", content=ESCAPED, headers=JSON)
        took = time.perf_counter() - began
        done.set()
        await asking

    assert answer.status_code == 413, answer.text  # the text is longer than a message's may be
    assert len(waits) >= 5
    assert max(waits) < took / 2, (max(waits), took)


JSON = {"content-type": "application/json"}
