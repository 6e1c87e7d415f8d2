"""The official JavaScript client against a real ingress."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.socketio_js import NodeClient, install_client


@pytest.fixture(scope="session")
def client_folder(pytestconfig: pytest.Config) -> Path:
    """Where the client is installed, once."""
    return install_client(pytestconfig.rootpath / ".pytest_cache" / "socketio_js")


@pytest.fixture
async def conversation(chat: Any) -> str:
    return (await chat.send("hello"))["conversation_id"]


@pytest.fixture
async def node(client_folder: Path, ingress: Any, conversation: str) -> AsyncIterator[NodeClient]:
    started = await NodeClient.start(client_folder, ingress.url, conversation)
    yield started
    await started.stop()


@pytest.mark.timeout(400)
async def test_it_follows_sends_a_file_and_goes_on_after_a_lost_connection(
    node: NodeClient, conversation: str, chat: Any, worker: Any
) -> None:
    assert (await node.until("session_info"))["user_id"] == "dev"
    assert (await node.until("connected"))["status"] == 200
    await worker.claim(conversation)
    ids = await worker.say(conversation, "a", "b")
    assert [await node.delta(), await node.delta()] == ids

    files = [{"filename": "a.csv", "mime": "text/csv", "data": "name,sum\na,1\n"}]
    node.tell({"send": {"conversation_id": "new", "text": "sum", "files": files, "idempotency_key": "js-1"}})
    sent = await node.until("sent")
    (turn,) = (await chat.state(sent["body"]["conversation_id"]))["turns"]
    assert (sent["status"], [file["filename"] for file in turn["attachments"]]) == (202, ["a.csv"])

    node.tell({"cut": True})
    await node.until("disconnected")
    assert (await node.until("connected"))["body"]["after"] == ids[-1]
    later = await worker.say(conversation, "c", "d")
    assert [await node.delta(), await node.delta()] == later


@pytest.mark.timeout(400)
async def test_another_namespace_is_refused_with_a_problem(node: NodeClient) -> None:
    await node.until("connected")

    node.tell({"namespace": "/admin"})

    assert (await node.until("refused"))["status"] == 404
