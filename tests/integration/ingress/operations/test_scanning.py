"""Stored files are revoked by newer signatures and by an operator."""

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from clamd_server import SIGNATURE, ClamdServer

from everturn_local.servers.databases import DatabaseUrls

BASE = "/conversations/default/default"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def clamd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClamdServer]:
    server = ClamdServer(tmp_path_factory.mktemp("clamd")).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def ingress(start_ingress: Callable[..., Any], clamd: ClamdServer) -> Any:
    return start_ingress(CLAMD_URL=clamd.url)


@pytest.fixture
def command(ingress_env: dict[str, str], database: DatabaseUrls, clamd: ClamdServer) -> Run:
    env = {"PATH": os.environ["PATH"], **ingress_env, "CLAMD_URL": clamd.url, "DATABASE_OWNER_URL": database.owner}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "ingress", *arguments]
        return subprocess.run(line, env=env, capture_output=True, text=True, timeout=50, check=False)

    return run


async def send(client: httpx2.AsyncClient, *texts: str) -> list[dict[str, Any]]:
    files = [{"filename": f"{text}.txt", "data_base64": base64.b64encode(text.encode()).decode()} for text in texts]
    sent = await client.post(f"{BASE}/new/messages", json={"text": "see", "attachments": files})
    assert sent.status_code == 202, sent.text
    state = await client.post(f"{BASE}/fetch", json={"conversation_id": sent.json()["conversation_id"]})
    return state.json()["turns"][0]["attachments"]


def stored(env: dict[str, str]) -> set[str]:
    return {path.name for path in Path(urlsplit(env["OBJECTS_URL"]).path).rglob("*") if path.is_file()}


@pytest.mark.timeout(180)
async def test_a_file_that_newer_signatures_detect_is_revoked(
    client: httpx2.AsyncClient, clamd: ClamdServer, command: Run, ingress_env: dict[str, str], refused: Any
) -> None:
    good, bad = await send(client, "harmless words", "words of a later virus")
    before = stored(ingress_env)

    clamd.kill()
    clamd.sign(SIGNATURE + f"Test.Later:0:0:{b'words of a later virus'.hex()}\n")
    clamd.start()
    done, again = command("rescan", "--all"), command("rescan", "--all")

    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "clean 1, revoked 1, unscannable 0, missing 0"), done
    assert again.stdout.splitlines()[-1] == "clean 1, revoked 0, unscannable 0, missing 0"
    refused(await client.get(bad["url"]), 410)
    assert (await client.get(good["url"])).content == b"harmless words"
    assert len(before - stored(ingress_env)) == 1


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_an_operator_revokes_a_file(client: httpx2.AsyncClient, command: Run, refused: Any) -> None:
    (file,) = await send(client, "reported words")
    artifact_id = file["url"].rpartition("/")[2]

    done, again = command("revoke", artifact_id, "--reason", "reported"), command("revoke", artifact_id)

    assert done.stdout.splitlines()[-1] == "1 files are revoked.", done
    assert again.returncode == 1
    refused(await client.get(file["url"]), 410)
