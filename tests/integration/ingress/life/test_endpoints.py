"""What becomes of a conversation beyond its turns, over HTTP."""

import base64
from collections.abc import Callable
from typing import Any

import httpx2

from everturn.timeline.export_check import check_export

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]


async def test_an_export_is_whole_and_has_no_bytes_of_files(client: httpx2.AsyncClient, chat: Any) -> None:
    files = [{"filename": "a.csv", "data_base64": base64.b64encode(b"a,secret\n").decode()}]
    conversation = (await chat.send("hello", attachments=files))["conversation_id"]

    answer = await client.get(f"{BASE}/{conversation}/export")

    report = check_export(answer.content.splitlines(keepends=True))
    assert (report.conversation_id, report.end.artifacts) == (conversation, 1)
    assert answer.headers["content-disposition"] == f'attachment; filename="{conversation}.jsonl"'
    assert b"a,secret" not in answer.content


async def test_only_the_owner_exports(client: httpx2.AsyncClient, chat: Any, refused: Refused) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    refused(await client.get(f"{BASE}/{conversation}/export", headers={"X-Dev-User": "bob"}), 404)
    refused(await client.get(f"/conversations/default/other/{conversation}/export"), 404)
    refused(await client.get(f"{BASE}/new/export"), 404)
