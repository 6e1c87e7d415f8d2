"""Erasing: rows and objects are deleted and counted."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.stream import EncodedEvent, Entry
from everturn.redis_drivers import RedisDrivers

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]


def stored_files(objects_url: str, conversation: str) -> list[Path]:
    return [
        path for path in Path(urlsplit(objects_url).path).rglob("*") if path.is_file() and conversation in str(path)
    ]


async def test_an_erased_conversation_leaves_nothing(
    client: httpx2.AsyncClient, chat: Any, refused: Refused, ingress_env: dict[str, str], redis_drivers: RedisDrivers
) -> None:
    files = [{"filename": "a.csv", "data_base64": base64.b64encode(b"a,b\n").decode()}]
    sent = await chat.send("hello", attachments=files)
    conversation = sent["conversation_id"]
    file = (await chat.state(conversation))["turns"][0]["attachments"][0]
    assert stored_files(ingress_env["OBJECTS_URL"], conversation)
    entry = Entry(ORIGIN, (EncodedEvent(EventCursor(1, 1), "chat.delta", b"{}"),))
    await redis_drivers.event_writer.publish(conversation, entry, after=None)

    erased = await client.delete(f"{BASE}/{conversation}")

    assert erased.status_code == 200, erased.text
    assert erased.json()["objects"] == 1
    assert erased.json()["objects_left"] == 0
    assert erased.json()["rows"]["turn"] == 1
    assert not stored_files(ingress_env["OBJECTS_URL"], conversation)
    assert await redis_drivers.event_reader.load_after(conversation, ORIGIN, max_entries=10) == ()
    refused(await client.get(f"{BASE}/{conversation}"), 404)
    refused(await client.get(file["url"]), 404)
    refused(await client.delete(f"{BASE}/{conversation}"), 404)
