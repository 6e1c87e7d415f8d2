"""Bad input against one running ingress: each case has one answer, and nothing is partly stored.

The tables are in tests/support/bad_input; that of uploads is in attachments/test_intake.py, addresses to fetch are
played in tests/unit/chat_proc/tools/web/test_bad_addresses.py. A test is a row: it plays all cases, and names those
that fail.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import httpx2
import pytest
from bad_input.cases import ARTIFACT, BASE, CONVERSATION, SIGNAL, TURN, Refusal
from bad_input.ids import ID_PLACES, ODD_IDS, ODD_IN_BODIES, ODD_SCOPES, PREFIXES, RNS, escaped, odd_id
from bad_input.json_bodies import JSON_BODIES, MANY_KEYS, MILLION_KEYS, SMALL_BYTES
from bad_input.playing import play
from bad_input.raw_http import RAW_HTTP, SILENT_HTTP
from bad_input.sockets import ANSWERS, EARLY_ENDS, ENDS, FOREIGN, REFUSED_JOINS, Frame
from bad_input.texts import FILE_NAMES, REFUSED_TEXTS, TITLES, VERBATIM_TEXTS
from bad_input.tokens import AUDIENCE, BAD_TOKENS, FOREIGN_PAGES, ISSUER, PROJECT, TENANT, Keys, signed
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from helpers.documented import Documented
from helpers.ingresses import list_objects
from helpers.sockets import ROUTE, RawSocket, SocketClient
from helpers.streams import Publisher, open_stream

from everturn.postgres.pool import Database
from everturn.redis_drivers import RedisDrivers

LIMIT_S = 30
JSON = {"Content-Type": "application/json"}
IDS = {
    "tenant": "default",
    "project": "default",
    "conversation_id": CONVERSATION,
    "turn_id": TURN,
    "signal_id": SIGNAL,
    "artifact_id": ARTIFACT,
    "memory_id": "mem_0",
    "number": "1",
    "step": "call_1",
    "bundle_id": "default",
    "name": "board",
    "server": "mail",
    "collection_id": "coll_01890a5d-ac96-774b-bcce-b302099a8057",
    "document_id": ARTIFACT,
    "skill": "refunds",
}
Operation = tuple[str, str, dict[str, Any]]


def check(answer: httpx2.Response, wanted: Refusal, case: object) -> None:
    """The answer is that problem and reveals nothing internal."""
    body = answer.json()
    problem = (answer.status_code, body["type"].rpartition(":")[2], answer.headers["content-type"])
    assert problem == (wanted.status, wanted.kind, "application/problem+json"), (case, answer.text[:500])
    assert "traceback" not in answer.text.lower()


@pytest.fixture(scope="module")
def operations(documented: Documented) -> list[Operation]:
    """All operations of the document."""
    return [(method.upper(), path, it) for path, item in documented.paths.items() for method, it in item.items()]


def example(operation: dict[str, Any]) -> Any:
    """The JSON body that the document shows first; None without one."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    named = [each["value"] for each in content.get("examples", {}).values()]
    return named[0] if named else content.get("example")


def needed_query(operation: dict[str, Any]) -> dict[str, Any]:
    """The query parameters that it needs, with the values that the document shows first."""
    needed = [each for each in operation.get("parameters", ()) if each["in"] == "query" and each["required"]]
    return {each["name"]: each["schema"]["examples"][0] for each in needed}


@pytest.fixture
async def socket(ingress: Any) -> AsyncIterator[SocketClient]:
    """A connected client in development mode."""
    connected = await SocketClient(ingress.url).connect()
    yield connected
    await connected.sio.disconnect()


# JSON and HTTP


async def test_a_body_that_cannot_be_meant_has_one_answer_everywhere(
    client: httpx2.AsyncClient, untouched: None, operations: list[Operation]
) -> None:
    # What the body of a bundle's operation means is decided by its author.
    meant = [each for each in operations if not each[1].endswith("/operations/{name}")]
    asked = [(method, path.format(**IDS)) for method, path, it in meant if example(it) is not None]
    assert len(asked) >= 12

    async def ask(case: str) -> None:
        raw, wanted = JSON_BODIES[case]
        for method, path in asked:
            check(await client.request(method, path, content=raw, headers=JSON), wanted, (method, path))

    await play(JSON_BODIES, ask)


async def test_a_million_keys_are_refused_by_the_cap_or_by_their_number(
    client: httpx2.AsyncClient, untouched: None, operations: list[Operation]
) -> None:
    for method, path, it in operations:
        if example(it) is None:
            continue
        large = path.endswith(("/messages", "/signals"))
        too_large, too_many = Refusal(413, "too-large"), Refusal(400, "malformed")
        check(await client.request(method, path.format(**IDS), content=MILLION_KEYS, headers=JSON), too_large, path)
        body = MANY_KEYS if large else b" " * (SMALL_BYTES + 1)
        wanted = too_many if large else too_large
        check(await client.request(method, path.format(**IDS), content=body, headers=JSON), wanted, path)


async def ask_raw(ingress: Any, raw: bytes, *, end: bool = False) -> bytes:
    """The bytes from the server until it closes, or one complete answer."""
    parts = urlsplit(ingress.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        async with asyncio.timeout(LIMIT_S):
            writer.write(raw)
            if end:
                writer.write_eof()
                return await reader.read()
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            return head + await reader.readexactly(int(length.partition(b":")[2]))
    finally:
        writer.close()


async def test_broken_http_has_one_answer(ingress: Any, untouched: None, documented: Documented) -> None:
    async def ask(case: str) -> None:
        raw, wanted = RAW_HTTP[case]
        answer = await ask_raw(ingress, raw)
        head, _, body = answer.partition(b"\r\n\r\n")
        problem = json.loads(body)
        assert (int(head.split()[1]), problem["status"]) == (wanted.status, wanted.status), answer
        assert problem["type"] == f"urn:everturn:problem:{wanted.kind}"
        assert b"content-type: application/problem+json" in head.lower()
        if raw.startswith(b"POST "):
            documented.check("POST", f"{BASE}/new/messages", wanted.status)

    await play(RAW_HTTP, ask)


async def test_a_client_that_disconnects_midway_leaves_nothing(ingress: Any, untouched: None) -> None:
    async def ask(case: str) -> None:
        assert await ask_raw(ingress, SILENT_HTTP[case], end=True) == b""

    await play(SILENT_HTTP, ask)


# Ids


async def test_an_odd_id_in_a_path_is_the_same_404_on_every_route(
    client: httpx2.AsyncClient, untouched: None, operations: list[Operation]
) -> None:
    places = [(*each, name) for each in operations for name in PREFIXES if f"{{{name}}}" in each[1]]

    async def ask(case: str) -> None:
        texts: set[str] = set()
        for method, path, it, name in places:
            odd = {name: escaped(odd_id(case, PREFIXES[name]))}
            url = path.format(**IDS | odd)
            # Git is asked for a password first, unless it says who it is.
            named = {"X-Dev-User": "ann"} if path.endswith("/workspace.git/info/refs") else {}
            answer = await client.request(method, url, params=needed_query(it), json=example(it) or {}, headers=named)
            check(answer, Refusal(404, "not-found"), (method, path, name))
            texts.add(answer.text)
        assert len(texts) == 1

    await play(ODD_IDS, ask)


async def test_what_is_no_tenant_or_project_is_404_on_every_route(
    client: httpx2.AsyncClient, untouched: None, operations: list[Operation]
) -> None:
    asked = [each for each in operations if "/guests/" not in each[1]]
    places = [(*each, name) for each in asked for name in ("tenant", "project") if f"{{{name}}}" in each[1]]

    async def ask(case: str) -> None:
        for method, path, it, name in places:
            odd = {name: escaped(ODD_SCOPES[case])}
            answer = await client.request(method, path.format(**IDS | odd), json=example(it) or {})
            check(answer, Refusal(404, "not-found"), (method, path, name))

    await play(ODD_SCOPES, ask)


@pytest.fixture
async def own(chat: Any) -> str:
    """A conversation with a turn that waits."""
    return (await chat.send("mine"))["conversation_id"]


async def test_an_odd_id_in_a_body_or_query_has_one_answer(
    client: httpx2.AsyncClient, own: str, untouched: None
) -> None:
    async def ask(place: str) -> None:
        method, path, body, wanted = ID_PLACES[place]
        prefix = "turn" if "turn" in place or "target" in place else "conv"
        for case in ODD_IN_BODIES:
            odd = odd_id(case, prefix)
            url = BASE + path.replace("{own}", own).replace("{odd}", quote(odd, safe=""))
            filled = None if body is None else _fill(body, own=own, odd=odd)
            check(await client.request(method, url, json=filled), wanted, case)

    await play(ID_PLACES, ask)


def _fill(value: Any, **texts: str) -> Any:
    match value:
        case dict():
            return {name: _fill(item, **texts) for name, item in value.items()}
        case list():
            return [_fill(item, **texts) for item in value]
        case str():
            return texts.get(value.strip("{}"), value)
        case _:
            return value


async def test_an_unknown_rn_has_one_answer(client: httpx2.AsyncClient, untouched: None) -> None:
    async def ask(case: str) -> None:
        rn, wanted = RNS[case]
        check(await client.post("/by-rn", json={"rn": rn}), wanted, case)

    await play(RNS, ask)


# Messages


async def test_a_rejected_text_has_one_answer(client: httpx2.AsyncClient, own: str, untouched: None) -> None:
    async def ask(case: str) -> None:
        text, wanted = REFUSED_TEXTS[case]
        body = json.dumps({"text": text})
        signal = json.dumps({"kind": "followup", "text": text})
        for url, sent in (
            (f"{BASE}/new/messages", body),
            (f"{BASE}/{own}/messages", body),
            (f"{BASE}/{own}/signals", signal),
        ):
            check(await client.post(url, content=sent, headers=JSON), wanted, url)
        parts = {"message": (None, body, "application/json")}
        check(await client.post(f"{BASE}/new/messages", files=parts), wanted, "multipart")

    # One at a time: a few of the largest would fill what one user may hold.
    await play(REFUSED_TEXTS, ask, at_once=1)


async def test_a_text_is_kept_and_given_back_as_it_was_sent(chat: Any, client: httpx2.AsyncClient) -> None:
    async def ask(case: str) -> None:
        text = VERBATIM_TEXTS[case]
        conversation = (await chat.send(text))["conversation_id"]
        steered = await chat.send(text, conversation, kind="steer")
        (turn,) = (await chat.state(conversation))["turns"]
        signal = await client.get(f"{BASE}/{conversation}/signals/{steered['signal_id']}")
        exported = (await client.get(f"{BASE}/{conversation}/export")).content
        assert turn["text"] == text and signal.json()["signal"]["text"] == text
        assert all(json.loads(line) for line in exported.split(b"\n") if line)

    large = {case for case, text in VERBATIM_TEXTS.items() if len(text) > 50_000}
    await play(large, ask, at_once=1)
    await play(VERBATIM_TEXTS.keys() - large, ask)


@pytest.mark.parametrize("view", ["native", "steps"])
async def test_no_text_breaks_the_frames_of_a_stream(
    chat: Any, client: httpx2.AsyncClient, redis_drivers: RedisDrivers, worker_database: Database, view: str
) -> None:
    texts = [text for text in VERBATIM_TEXTS.values() if len(text) < 1_000]
    conversation = (await chat.send("hello"))["conversation_id"]
    worker = Publisher(redis_drivers, worker_database)
    await worker.claim(conversation)
    (first,) = await worker.say(conversation, "begin")
    await worker.say(conversation, *texts)

    got: list[str] = []
    async with asyncio.timeout(LIMIT_S), open_stream(client, conversation, last_event_id=first, view=view) as stream:
        # Lines as `str.splitlines` sees them, which knows more ends than SSE does.
        async for line in stream.response.aiter_lines():
            name, _, value = line.partition(": ")
            assert name in ("", "event", "id", "retry", "data"), line
            problem = json.loads(value) if name == "data" else {}
            text = problem.get("data", problem).get("text", problem.get("content"))
            got += [] if text is None else [text]
            if len(got) == len(texts):
                break

    assert got == texts


# Names


async def test_a_file_has_one_clean_name_wherever_it_came_from(
    client: httpx2.AsyncClient, chat: Any, socket: Any, ingress_env: dict[str, str]
) -> None:
    async def ask(case: str) -> None:
        raw, kept = FILE_NAMES[case]
        data = f"words of {case}\n".encode()
        inline = {"filename": raw, "mime": "text/plain", "data_base64": base64.b64encode(data).decode()}
        file = {"filename": raw, "mime": "text/plain", "data": data}
        sent = [(await chat.send("see", attachments=[inline]))["conversation_id"]]
        answer = await socket.call("chat_message", {"conversation_id": "new", "text": "see", "files": [file]})
        sent.append(answer["body"]["conversation_id"])
        for conversation in sent:
            (item,) = (await chat.state(conversation))["turns"][0]["attachments"]
            got = await client.get(item["url"], params={"download": "1"})
            assert (item["filename"], got.content) == (kept, data)
            assert got.headers["content-disposition"].startswith('attachment; filename="')
            assert (await client.post("/by-rn", json={"rn": item["rn"]})).json()["filename"] == kept
        # No part of a name reaches the store.
        assert not any("txt" in str(path) or path.name == kept for path in list_objects(ingress_env))

    await play(FILE_NAMES, ask)


async def test_a_title_is_one_line_in_one_form_or_refused(client: httpx2.AsyncClient) -> None:
    async def ask(case: str) -> None:
        title, kept = TITLES[case]
        made = await client.post(BASE, json={"title": title})
        if kept is None:
            check(made, Refusal(422, "unprocessable"), case)
            return
        assert (made.status_code, made.json()["title"]) == (201, kept)
        found = (await client.get(BASE, params={"q": title, "limit": 100})).json()["items"]
        assert made.json()["conversation_id"] in [item["conversation_id"] for item in found]

    await play(TITLES, ask)


# Sockets


@pytest.fixture
async def web(ingress: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(base_url=ingress.url) as session:
        yield session


@pytest.mark.parametrize(("cases", "joins"), [(ENDS, True), (EARLY_ENDS, False)], ids=["joined", "early"])
async def test_what_no_client_may_send_ends_that_one_socket_with_its_code(
    web: aiohttp.ClientSession,
    socket: SocketClient,
    untouched: None,
    cases: dict[str, tuple[list[Frame], int]],
    joins: bool,
) -> None:
    codes: dict[str, int] = {}

    for case, (frames, _) in cases.items():
        async with web.ws_connect(ROUTE) as opened:
            raw = RawSocket(opened)
            await (raw.join() if joins else raw.next())
            await raw.send(*frames)
            codes[case] = await raw.closed()

    assert codes == {case: code for case, (_, code) in cases.items()}
    assert (await socket.call("conv_status.get", {"conversation_id": CONVERSATION}))["status"] == 404


async def test_a_refused_connection_gets_its_problem(web: aiohttp.ClientSession, untouched: None) -> None:
    for case, (frame, wanted) in REFUSED_JOINS.items():
        async with web.ws_connect(ROUTE) as opened:
            raw = RawSocket(opened)
            await raw.next()
            await raw.send(frame)
            refused = await raw.next()

        assert refused.startswith("44"), (case, refused)
        problem = json.loads(refused[refused.index("{") :])["data"]
        assert (problem["status"], problem["type"].rpartition(":")[2]) == (wanted.status, wanted.kind), (case, problem)


async def test_an_invalid_call_has_one_answer_and_the_socket_stays_open(
    web: aiohttp.ClientSession, foreign: str, untouched: None
) -> None:
    async with web.ws_connect(ROUTE) as opened:
        raw = await RawSocket(opened).join()
        for case, (frames, wanted) in ANSWERS.items():
            await raw.send(*(frame.replace(FOREIGN, foreign) if isinstance(frame, str) else frame for frame in frames))
            refused = await raw.next()
            assert refused.startswith("431["), (case, refused)
            (answer,) = json.loads(refused[3:])
            problem = answer["status"], answer["body"]["status"], answer["body"]["type"].rpartition(":")[2]
            assert problem == (wanted.status, wanted.status, wanted.kind), (case, answer)


@pytest.fixture
async def foreign(client: httpx2.AsyncClient) -> str:
    """A conversation of another user."""
    sent = await client.post(f"{BASE}/new/messages", json={"text": "a"}, headers={"X-Dev-User": "ann"})
    return sent.json()["conversation_id"]


async def test_a_bad_body_has_the_same_answer_in_a_socket_call(web: aiohttp.ClientSession, untouched: None) -> None:
    async with web.ws_connect(ROUTE) as opened:
        going_on = await RawSocket(opened).join()
        for number, (case, (raw, wanted)) in enumerate(JSON_BODIES.items(), start=1):
            packet = b'42%d["chat_message",' % number + raw + b"]"
            if is_utf_8(raw):
                await going_on.send_bytes_as_text(packet)
                answer = json.loads((await going_on.next()).removeprefix(f"43{number}"))[0]
                problem = (answer["status"], answer["body"]["status"], answer["body"]["type"].rpartition(":")[2])
                assert problem == (wanted.status, wanted.status, wanted.kind), (case, answer)
                continue
            async with web.ws_connect(ROUTE) as other:
                ended = await RawSocket(other).join()
                await ended.send_bytes_as_text(packet)
                assert await ended.closed() == 1007, case


def is_utf_8(raw: bytes) -> bool:
    """Whether a text frame may hold it."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


async def test_an_odd_id_has_the_same_answer_over_a_socket(ingress: Any, untouched: None) -> None:
    async def ask(case: str) -> None:
        odd = odd_id(case, "conv")
        calls = [
            ("conv_status.get", {"conversation_id": odd}),
            ("conv_subscribe", {"conversation_id": odd}),
            ("conv_unsubscribe", {"conversation_id": odd}),
            ("chat_signal", {"conversation_id": odd, "kind": "cancel"}),
            ("chat_message", {"conversation_id": odd, "text": "a"}),
        ]
        # A socket for each case, because each has only so many calls a second.
        socket = await SocketClient(ingress.url).connect()
        for name, payload in calls:
            answer = await socket.call(name, payload)
            assert (answer["status"], answer["body"]["type"]) == (404, "urn:everturn:problem:not-found"), (name, answer)
        await socket.sio.disconnect()

    await play(ODD_IN_BODIES, ask)


async def test_a_rejected_text_has_the_same_answer_over_a_socket(socket: Any, untouched: None) -> None:
    async def ask(case: str) -> None:
        text, wanted = REFUSED_TEXTS[case]
        answer = await socket.call("chat_message", {"conversation_id": "new", "text": text})
        assert (answer["status"], answer["body"]["type"].rpartition(":")[2]) == (wanted.status, wanted.kind)

    await play(REFUSED_TEXTS, ask, at_once=1)


# Credentials


@pytest.fixture(scope="module")
def keys() -> Keys:
    issuer, forger = (generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    pem = issuer.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return Keys(issuer, pem, forger)


@pytest.fixture(scope="module")
def production(start_ingress: Any, keys: Keys) -> Any:
    return start_ingress(
        {"bad_credentials": None},
        EVERTURN_MODE="production",
        AUTH_ISSUER=ISSUER,
        AUTH_AUDIENCE=AUDIENCE,
        AUTH_PUBLIC_KEY=keys.public_pem,
        ALLOWED_ORIGINS="https://chat.example",
        GUEST_SCOPES="default/default",
        RATE_LIMITS_WRITES="off",
    )


@pytest.fixture
async def stranger(production: Any, documented: Documented) -> AsyncIterator[httpx2.AsyncClient]:
    """A client outside development; the process survives without an error."""
    pid, hooks = production.process.pid, {"response": [documented.check_response]}
    async with httpx2.AsyncClient(base_url=production.url, timeout=20, event_hooks=hooks) as http:
        yield http
        assert "ingress_unhandled_errors_total 0.0" in (await http.get("/metrics")).text
    assert production.alive() and production.process.pid == pid


async def test_an_invalid_credential_is_refused_wherever_it_is_sent(
    production: Any, stranger: httpx2.AsyncClient, keys: Keys, untouched: None
) -> None:
    base = f"/conversations/{TENANT}/{PROJECT}"
    good = {"Authorization": f"Bearer {signed(keys)}"}
    assert (await stranger.get(base, headers=good)).status_code == 200
    refusal = Refusal(401, "unauthorized")

    async def ask(case: str) -> None:
        token = BAD_TOKENS[case](keys)
        header = {"Authorization": f"Bearer {token}"}
        check(await stranger.get(base, headers=header), refusal, "header")
        check(await stranger.post(base, json={"title": "stored by mistake"}, headers=header), refusal, "write")
        events = f"{base}/{CONVERSATION}/events"
        check(await stranger.get(events, params={"ticket": token}), refusal, "ticket")
        check(await stranger.get(events, params={"ticket": token}, headers=good), refusal, "ticket beside a header")
        problem = await SocketClient(production.url).refused(token=token, tenant=TENANT, project=PROJECT)
        assert (problem["status"], problem["type"].rpartition(":")[2]) == (401, "unauthorized"), problem

    await play(BAD_TOKENS, ask)


async def test_a_ticket_opens_only_its_own_stream(production: Any, stranger: httpx2.AsyncClient, keys: Keys) -> None:
    base, good = f"/conversations/{TENANT}/{PROJECT}", {"Authorization": f"Bearer {signed(keys)}"}
    made = [(await stranger.post(base, json={"title": "t"}, headers=good)).json() for _ in range(2)]
    own, other = (f"{base}/{each['conversation_id']}" for each in made)
    ticket = (await stranger.post(f"{own}/ticket", headers=good)).json()["ticket"]
    refusal = Refusal(401, "unauthorized")

    for _ in range(2):
        check(await stranger.get(f"{other}/events", params={"ticket": ticket}), refusal, "another stream")
        check(await stranger.get(own, params={"ticket": ticket}), refusal, "the conversation itself")
        check(await stranger.get(own, headers={"Authorization": f"Bearer {ticket}"}), refusal, "as a token")
        problem = await SocketClient(production.url).refused(token=ticket, tenant=TENANT, project=PROJECT)
        assert problem["status"] == 401


async def test_a_foreign_page_writes_nothing_also_with_a_good_credential(
    production: Any, stranger: httpx2.AsyncClient, keys: Keys, untouched: None
) -> None:
    good, forbidden = signed(keys), Refusal(403, "forbidden")
    url = f"/conversations/{TENANT}/{PROJECT}/new/messages"

    async def ask(case: str) -> None:
        headers = {"Content-Type": "application/json"} | FOREIGN_PAGES[case]
        for more in ({}, {"Authorization": f"Bearer {good}"}):
            answer = await stranger.post(url, content=b'{"text":"stored by mistake"}', headers=headers | more)
            check(answer, forbidden, sorted(more))
        origin = {"Origin": headers["Origin"]}
        problem = await SocketClient(production.url).refused(headers=origin, token=good, tenant=TENANT, project=PROJECT)
        assert problem["status"] == 403

    await play(FOREIGN_PAGES, ask)
