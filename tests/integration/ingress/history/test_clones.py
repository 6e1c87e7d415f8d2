"""Cloning a workspace with git itself, and what hostile clients send instead."""

import asyncio
import base64
import gzip
import hashlib
import os
import socket
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jwt
import pytest
from helpers.documented import Documented
from helpers.waiting import wait_until

from ingress.history.service import READERS_OF_PERSON
from ingress.history.smart_http import MAX_REQUEST_BYTES

BASE = "/conversations/default/default"
SECRET = "a secret that is long enough for HS256"
REQUEST = {"Content-Type": "application/x-git-upload-pack-request"}
LARGE_BYTES = 24 * 1024 * 1024
Refused = Callable[..., dict[str, Any]]


async def run_git(*command: str | Path, **environment: str) -> tuple[int, str]:
    """The exit status of git, and what it writes."""
    process = await asyncio.create_subprocess_exec(
        "git",
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
            **environment,
        },
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, output.decode()


async def git(*command: str | Path, **environment: str) -> str:
    """What git writes; it must succeed."""
    status, output = await run_git(*command, **environment)
    assert status == 0, output
    return output


def find_gits(ingress: Any) -> list[str]:
    """The command lines of the processes of git that an ingress runs, of their children too."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                lines[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
    found: list[str] = []
    for pid, line in lines.items():
        above = pid
        while above in parents and above != ingress.process.pid:
            above = parents[above]
        if above == ingress.process.pid and pid != above and "git" in line:
            found.append(line)
    return found


def find_resident_bytes(ingress: Any) -> int:
    return int(Path(f"/proc/{ingress.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.fixture
def url(ingress: Any) -> Callable[[str], str]:
    return lambda conversation: f"{ingress.url}{BASE}/{conversation}/workspace.git"


@pytest.mark.parametrize("version", ["0", "1", "2"])
async def test_a_workspace_is_cloned_and_followed(
    workspace: Any, url: Callable[[str], str], tmp_path: Path, version: str
) -> None:
    conversation, _ = await workspace.change("new", "First.", a_txt=b"1\n", src__b_py=b"pass\n")
    await workspace.change(conversation, "Second.", a_txt=b"2\n")
    clone, protocol = tmp_path / "clone", f"protocol.version={version}"

    await git("-c", protocol, "clone", "--quiet", url(conversation), clone)
    await git("-C", clone, "fsck", "--strict")
    assert (await git("-C", clone, "log", "--format=%s %an")).splitlines() == ["Second. Everturn", "First. Everturn"]
    assert (clone / "a.txt").read_bytes() == b"2\n"
    assert (await git("-C", clone, "branch", "--show-current")).strip() == "main"

    for n in range(3):
        await workspace.change(conversation, f"More {n}.", a_txt=b"%d\n" % (n + 3))
    # More than a kilobyte of what it has makes git compress its request.
    await git("-C", clone, "-c", protocol, "pull", "--quiet", "--ff-only")
    assert (clone / "a.txt").read_bytes() == b"5\n"
    shallow = tmp_path / "shallow"
    await git("-c", protocol, "clone", "--quiet", "--depth=1", url(conversation), shallow)
    assert len((await git("-C", shallow, "log", "--format=%s")).splitlines()) == 1


async def test_a_workspace_without_files_is_cloned_too(chat: Any, url: Callable[[str], str], tmp_path: Path) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    assert "empty repository" in await git("clone", url(conversation), tmp_path / "clone")


async def test_clones_at_once_get_the_same(workspace: Any, url: Callable[[str], str], tmp_path: Path) -> None:
    conversation, _ = await workspace.change("new", a=hashlib.shake_256(b"").digest(1_000_000))

    await asyncio.gather(*(git("clone", "--quiet", url(conversation), tmp_path / str(n)) for n in range(3)))

    heads = {await git("-C", tmp_path / str(n), "rev-parse", "HEAD") for n in range(3)}
    assert len(heads) == 1


async def test_nothing_can_be_pushed(
    client: httpx2.AsyncClient, workspace: Any, url: Callable[[str], str], tmp_path: Path, refused: Refused
) -> None:
    conversation, _ = await workspace.change("new", a=b"1")
    clone = tmp_path / "clone"
    await git("clone", "--quiet", url(conversation), clone)

    status, output = await run_git("-C", clone, "push", "origin", "main:other")

    assert (status != 0, "403" in output) == (True, True), output
    base = f"{BASE}/{conversation}/workspace.git"
    problem = refused(await client.get(f"{base}/info/refs", params={"service": "git-receive-pack"}), 403)
    assert "read-only" in problem["detail"]
    refused(await client.get(f"{base}/info/refs", params={"service": "git-upload-archive"}), 422)
    for path in ("git-receive-pack", "HEAD", "objects/info/packs", "config"):
        refused(await client.post(f"{base}/{path}", content=b"0000"), 404)


async def test_a_history_that_grows_during_a_clone_gives_what_was_announced(
    client: httpx2.AsyncClient, workspace: Any
) -> None:
    conversation, _ = await workspace.change("new", a=b"1")
    base = f"{BASE}/{conversation}/workspace.git"
    refs = (await client.get(f"{base}/info/refs", params={"service": "git-upload-pack"})).content
    head = refs.split(b"\n")[1][8:48]
    await workspace.change(conversation, a=b"2")

    answer = await client.post(f"{base}/git-upload-pack", content=want(head), headers=REQUEST)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-git-upload-pack-result"
    assert answer.content.startswith(b"0008NAK\n")
    assert b"PACK" in answer.content
    assert (await client.get(f"{base}/info/refs")).content.split(b"\n")[1][8:48] != head


def want(commit: bytes) -> bytes:
    return b"0032want " + commit + b"\n00000009done\n"


async def test_only_the_owner_clones_and_an_erased_workspace_is_gone(
    client: httpx2.AsyncClient, workspace: Any, url: Callable[[str], str], tmp_path: Path, refused: Refused
) -> None:
    conversation, _ = await workspace.change("new", a=b"secret")
    base = f"{BASE}/{conversation}/workspace.git"
    bob = {"X-Dev-User": "bob"}

    refused(await client.get(f"{base}/info/refs", headers=bob), 404)
    refused(await client.post(f"{base}/git-upload-pack", content=b"0000", headers=REQUEST | bob), 404)
    assert (await client.post(f"{base}/git-upload-pack", content=b"0000", headers=REQUEST)).content == b""
    await client.delete(f"{BASE}/{conversation}")
    status, output = await run_git("clone", url(conversation), tmp_path / "clone")
    assert (status != 0, "could not read Username" in output) == (True, True), output
    refused(await client.get(f"{base}/info/refs", headers={"X-Dev-User": "dev"}), 404)
    asked = await client.get(f"{base}/info/refs")
    refused(asked, 401)
    assert asked.headers["www-authenticate"].startswith("Basic ")
    refused(await client.post(f"{base}/git-upload-pack", content=b"0000", headers=REQUEST), 404)


async def test_hostile_requests_have_one_answer(client: httpx2.AsyncClient, workspace: Any, refused: Refused) -> None:
    conversation, _ = await workspace.change("new", a=b"1")
    path = f"{BASE}/{conversation}/workspace.git/git-upload-pack"
    packed, v2 = REQUEST | {"Content-Encoding": "gzip"}, REQUEST | {"Git-Protocol": "version=2"}
    bomb = gzip.compress(bytes(MAX_REQUEST_BYTES * 20))
    commands = [b"0014command=ls-refs\n0000"] * 3

    refused(await client.post(path, content=b"0000"), 415)
    refused(await client.post(path, content=b"0000", headers=REQUEST | {"Content-Encoding": "br"}), 415)
    refused(await client.post(path, content=bomb, headers=packed), 413)
    refused(await client.post(path, content=bytes(MAX_REQUEST_BYTES + 1), headers=REQUEST), 413)
    refused(await client.post(path, content=b"0000", headers=packed), 400)
    refused(await client.post(path, content=gzip.compress(b"0000")[:-1], headers=packed), 400)
    refused(await client.post(path, content=gzip.compress(b"0000") + b"x", headers=packed), 400)
    refused(await client.post(path, content=zlib.compress(b"0000"), headers=packed), 400)
    refused(await client.post(path, content=b"garbage", headers=REQUEST), 400)
    refused(await client.post(path, content=b"0014command=evil   \n0000", headers=v2), 400)
    assert (await client.post(path, content=gzip.compress(b"0000"), headers=packed)).status_code == 200
    absent = await client.post(path, content=want(b"f" * 40), headers=REQUEST)
    assert b"not our ref" in absent.content
    filtered = b"0011command=fetch0001000ffilter=blob:none0000"
    assert b"PACK" not in (await client.post(path, content=filtered, headers=v2)).content
    assert (await client.post(path, content=b"".join(commands), headers=v2)).content.count(b"refs/heads/main") == 1


async def test_an_odd_protocol_header_is_not_given_to_git(client: httpx2.AsyncClient, workspace: Any) -> None:
    conversation, _ = await workspace.change("new", a=b"1")
    path = f"{BASE}/{conversation}/workspace.git/info/refs"

    for header in ("version=9", "version=2;x", "x" * 9000):
        answer = await client.get(path, headers={"Git-Protocol": header})
        assert answer.status_code == 200
        assert answer.content.startswith(b"001e# service=git-upload-pack\n0000")
    answer = await client.get(path, headers={"Git-Protocol": "a=b:version=2"})
    assert answer.content.startswith(b"000eversion 2\n")
    assert answer.headers["cache-control"].startswith("no-cache")


async def start_fetch(ingress: Any, conversation: str, head: bytes) -> socket.socket:
    """A client that asks for everything and reads nothing."""
    host, port = urlsplit(ingress.url).hostname, urlsplit(ingress.url).port
    sock = socket.create_connection((host, port))
    body = want(head)
    sock.sendall(
        f"POST {BASE}/{conversation}/workspace.git/git-upload-pack HTTP/1.1\r\nHost: localhost:{port}\r\n"
        f"Content-Type: {REQUEST['Content-Type']}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return sock


async def test_git_ends_with_the_connection_and_waits_for_a_slow_one(
    client: httpx2.AsyncClient, ingress: Any, workspace: Any, refused: Refused
) -> None:
    conversation, _ = await workspace.change("new", a=hashlib.shake_256(b"").digest(LARGE_BYTES))
    refs = f"{BASE}/{conversation}/workspace.git/info/refs"
    head = (await client.get(refs)).content.split(b"\n")[1][8:48]

    slow = [await start_fetch(ingress, conversation, head) for _ in range(READERS_OF_PERSON)]
    try:
        await wait_until(lambda: len([each for each in find_gits(ingress) if "upload-pack" in each]) >= len(slow))
        limited = await client.get(refs)
        refused(limited, 429)
        assert "requests to histories" in limited.json()["detail"]
        received = slow[0].recv(65_536)
        assert received.startswith(b"HTTP/1.1 200")
        assert find_resident_bytes(ingress) < 600_000_000
    finally:
        for sock in slow:
            sock.close()
    await wait_until(lambda: find_gits(ingress) == [])
    await wait_until(lambda: httpx2.get(f"{ingress.url}{refs}").status_code == 200)


# With tokens


@pytest.fixture(scope="module")
def production(start_ingress: Any) -> Any:
    return start_ingress(EVERTURN_MODE="production", AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET)


def build_token(user: str = "dev") -> str:
    claims = {"iss": "i", "aud": "a", "sub": user, "exp": int(time.time()) + 600}
    return jwt.encode(claims | {"tenant": "default", "project": "default"}, SECRET, "HS256")


def basic(password: str, user: str = "git") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def test_git_sends_a_token_as_its_password(workspace: Any, production: Any, tmp_path: Path) -> None:
    conversation, _ = await workspace.change("new", a=b"1")
    path = f"{BASE}/{conversation}/workspace.git"
    parts = urlsplit(production.url)
    ask = tmp_path / "ask"
    ask.write_text('#!/bin/sh\ncase "$1" in Username*) echo git;; *) echo "$TOKEN";; esac\n')
    ask.chmod(0o755)

    await git("clone", "--quiet", production.url + path, tmp_path / "a", GIT_ASKPASS=str(ask), TOKEN=build_token())
    await git("clone", "--quiet", f"http://git:{build_token()}@{parts.netloc}{path}", tmp_path / "b")
    bearer = f"http.extraHeader=Authorization: Bearer {build_token()}"
    await git("-c", bearer, "clone", "--quiet", production.url + path, tmp_path / "c")
    for n, token in enumerate((build_token("bob"), "x.y.z", "")):
        status, output = await run_git(
            "clone", production.url + path, tmp_path / f"no{n}", GIT_ASKPASS=str(ask), TOKEN=token
        )
        assert status != 0, output

    assert {(tmp_path / name / "a").read_bytes() for name in "abc"} == {b"1"}


async def test_basic_opens_nothing_else_and_nothing_to_a_browser(
    workspace: Any, production: Any, documented: Documented, refused: Refused
) -> None:
    conversation, _ = await workspace.change("new", a=b"1")
    base, good = f"{BASE}/{conversation}", basic(build_token())
    refs = f"{base}/workspace.git/info/refs"

    async with httpx2.AsyncClient(base_url=production.url, timeout=20) as http:
        assert (await http.get(refs, headers=good)).status_code == 200
        for path in (base, f"{base}/workspace/commits", BASE, f"{base}/export"):
            answer = await http.get(path, headers=good)
            refused(answer, 401)
            assert "Basic" not in answer.headers["www-authenticate"]
        for fetch in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Mode": "navigate"}, {"Origin": production.url}):
            answer = await http.get(refs, headers=good | fetch)
            refused(answer, 401)
            assert "Basic" not in answer.headers["www-authenticate"]
        for wrong in ({}, basic(""), basic("x.y.z"), {"Authorization": "Basic ?"}, {"Authorization": "Basic"}):
            answer = await http.get(refs, headers=wrong)
            refused(answer, 401)
            assert answer.headers["www-authenticate"].startswith('Basic realm="everturn"')
        refused(await http.get(refs, headers=basic(build_token("bob"))), 404)
        other = refs.replace("/default/default/", "/default/other/")
        refused(await http.get(other, headers=good), 404)
