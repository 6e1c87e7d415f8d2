"""F17 to F19: antivirus, object store and model provider fail in the middle of the traffic; all end in the checker."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from clamd_server import EICAR
from faults.outside import PREFIX, Outside, open_outside
from helpers.provider import Answer, build_openai_events
from helpers.s3 import BUCKET
from helpers.waiting import wait_until
from platform_harness.watcher import Watcher

from everturn_local.servers.databases import DATABASE

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

SCRIPTS = Path(__file__).with_name("scripts.toml")
ANSWER = """<channel:thinking>A question.</channel:thinking>
<channel:action>{"action": "complete", "notes": "", "tool_call": null, "final_answer": "From the provider.",
"suggested_followups": null}</channel:action>"""
WRITE = """<channel:thinking>I write a note.</channel:thinking>
<channel:action>{"action": "call_tool", "notes": "", "tool_call": {"tool_id": "react.write", "params":
{"path": "outputs/note.md", "channel": "canvas", "kind": "file", "content": "# Note"}}, "final_answer": null,
"suggested_followups": null}</channel:action>"""
TEXT = b"region,revenue\n" + b"North,240.50\n" * 20_000
"""Large enough that a link can be cut in its middle."""
FROZEN = b"frozen,region,revenue\n"
"""The beginning of a file that the antivirus receives while it hangs."""
FETCH_S = 20.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outside]:
    async with open_outside(tmp_path_factory.mktemp("outside"), SCRIPTS) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def calm(outside: Outside) -> AsyncIterator[None]:
    """Each test begins with a provider that answers and links that work."""
    outside.provider.forget()
    say(outside, ANSWER)
    yield
    outside.heal()
    await outside.harness.close()


def say(outside: Outside, *texts: str) -> None:
    for text in texts:
        outside.provider.answer_events(*build_openai_events(text))


async def send_file(outside: Outside, n: int, data: bytes = TEXT, name: str = "sales.csv") -> httpx2.Response:
    """One message with a file to a new conversation, sent once."""
    url = f"{outside.harness.platform.urls[n % 2]}/conversations/default/default/new/messages"
    parts = [
        ("message", (None, json.dumps({"text": f"script:plain please, {n}"}).encode(), "application/json")),
        ("files", (name, data, "text/csv")),
    ]
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        return await http.post(url, files=parts)


async def send_during(outside: Outside, breaking: Awaitable[None]) -> list[httpx2.Response]:
    """Messages with files, three at a time, from before a failure until after it is repaired."""
    answers = await asyncio.gather(*(send_file(outside, n) for n in range(2)))
    broken = asyncio.ensure_future(breaking)
    while not broken.done():
        answers += await asyncio.gather(*(send_file(outside, n) for n in range(3)))
    await broken
    return [*answers, await send_file(outside, 0)]


async def check_files(outside: Outside, answers: list[httpx2.Response]) -> None:
    """Everything accepted is answered and has its file, all else is a typed refusal, and every row has its object."""
    accepted = [answer.json() for answer in answers if answer.status_code == 202]
    for answer in answers:
        assert answer.status_code in (202, 503), answer.text
        if answer.status_code == 503:
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) >= 1
    for sent in accepted:
        watcher = outside.harness.watch(sent["conversation_id"])
        turn = await watcher.wait_ended(sent["turn_id"])
        await wait_rest(watcher)
        assert [file.filename for file in turn.attachments] == ["sales.csv"]
        await outside.harness.check_invariants(sent["conversation_id"], watcher)
    rows = await load_rows(outside)
    assert {key for key, _ in rows} <= load_keys(outside)
    assert all(verdict.startswith("clean ClamAV") for _, verdict in rows)


async def wait_rest(watcher: Watcher) -> None:
    """Including errors: a turn whose file the store can't deliver ends with one."""
    await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state in ("idle", "error"))


async def load_rows(outside: Outside) -> list[list[str]]:
    """Key and verdict of every stored attachment."""
    query = "SELECT object_key || '|' || verdict FROM artifact WHERE kind = 'attachment'"
    printed = await asyncio.to_thread(outside.harness.platform.postgres.run_sql, query, database=DATABASE)
    return [line.split("|", 1) for line in printed.splitlines()]


def load_keys(outside: Outside) -> set[str]:
    pages = outside.s3.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{PREFIX}/")
    return {row["Key"].removeprefix(f"{PREFIX}/") for page in pages for row in page.get("Contents", [])}


async def kill_clamd(outside: Outside) -> None:
    """Killed by hand, looked for while it is away, and started again."""
    outside.clamd.kill()
    refused = await send_file(outside, 1)
    assert refused.status_code == 503
    await asyncio.to_thread(outside.clamd.start)


async def slow_clamd(outside: Outside) -> None:
    """It receives a file piece by piece, and hangs until it has received some of another one."""
    outside.to_clamd.drip(16_384, 0.02)
    assert (await send_file(outside, 1)).status_code == 202
    outside.clamd.freeze()
    begun = outside.to_clamd.expect(FROZEN)
    waiting = asyncio.create_task(send_file(outside, 1, FROZEN + TEXT))
    async with asyncio.timeout(FETCH_S):
        await begun.wait()
    assert not waiting.done()
    outside.clamd.thaw()
    outside.to_clamd.heal()
    assert (await waiting).status_code == 202


async def erring_clamd(outside: Outside) -> None:
    """It rejects every request."""
    home = outside.to_clamd.target
    server = await asyncio.start_server(_err, "127.0.0.1", 0)
    outside.to_clamd.target = server.sockets[0].getsockname()[:2]
    try:
        assert (await send_file(outside, 1)).status_code == 503
    finally:
        outside.to_clamd.target = home
        server.close()


async def _err(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(64)
    writer.write(b"Can't allocate memory ERROR\0")
    await writer.drain()
    writer.close()


async def no_store(outside: Outside) -> None:
    outside.to_s3.refuse()
    assert (await send_file(outside, 1)).status_code == 503
    outside.to_s3.heal()


async def silent_store(outside: Outside) -> None:
    """Longer than the client waits for an answer."""
    outside.to_s3.silence()
    assert (await send_file(outside, 1)).status_code == 503
    outside.to_s3.heal(cut=True)


async def cut_store(outside: Outside) -> None:
    """Every exchange breaks in the middle."""
    outside.to_s3.drip(8_192, 0.02)
    sending = asyncio.create_task(send_file(outside, 1))
    while not sending.done():
        outside.to_s3.cut()
        await asyncio.sleep(0.05)
    assert (await sending).status_code == 503
    outside.to_s3.heal()


@pytest.mark.parametrize("fault", [kill_clamd, slow_clamd, erring_clamd])
async def test_without_antivirus_files_are_refused_and_text_is_accepted(
    outside: Outside, fault: Callable[[Outside], Awaitable[None]]
) -> None:
    infected = asyncio.gather(*(send_file(outside, n, EICAR, "sales.txt") for n in range(2)))
    answers = await send_during(outside, fault(outside))

    assert {answer.status_code for answer in await infected} <= {422, 503}
    assert answers[-1].status_code == 202
    await check_files(outside, answers)


@pytest.mark.parametrize("fault", [no_store, pytest.param(silent_store, marks=pytest.mark.slow), cut_store])
async def test_no_row_is_kept_of_a_file_that_the_store_did_not_take(
    outside: Outside, fault: Callable[[Outside], Awaitable[None]]
) -> None:
    answers = await send_during(outside, fault(outside))

    assert answers[-1].status_code == 202
    await check_files(outside, answers)
    # What the store took although nobody heard of it is deleted by a worker.
    named = {key for key, _ in await load_rows(outside)}
    await wait_until(lambda: {key for key in load_keys(outside) if "/manifests/" not in key} == named)


async def test_a_turn_whose_file_can_not_be_stored_ends_and_says_so(outside: Outside) -> None:
    outside.provider.forget()
    say(outside, WRITE, ANSWER)
    outside.to_s3.refuse()

    sent = await outside.harness.clients[0].send_message("new", "Write a note.")
    watcher = outside.harness.watch(sent.conversation_id)
    turn = await watcher.wait_ended(sent.turn_id)

    assert [step.status for step in turn.steps] == ["error"]
    assert turn.answer == "From the provider."
    assert turn.files == ()
    await outside.harness.check_invariants(sent.conversation_id, watcher)


async def test_a_truncated_download_is_an_error(outside: Outside) -> None:
    sent = (await send_file(outside, 0)).json()
    watcher = outside.harness.watch(sent["conversation_id"])
    (attached,) = (await watcher.wait_ended(sent["turn_id"])).attachments

    outside.to_s3.drip(8_192, 0.02)
    loading = asyncio.create_task(load_file(outside, attached.url))
    while not loading.done():
        await asyncio.sleep(0.2)
        outside.to_s3.cut()
    outside.to_s3.heal()

    assert await loading is None
    assert await load_file(outside, attached.url) == TEXT
    await outside.harness.check_invariants(sent["conversation_id"], watcher)


async def load_file(outside: Outside, url: str) -> bytes | None:
    """None when it did not come whole."""
    async with httpx2.AsyncClient(base_url=outside.harness.platform.urls[0], trust_env=False, timeout=FETCH_S) as http:
        try:
            answer = await http.get(url)
        except httpx2.HTTPError:
            return None
    return answer.content if answer.status_code == 200 else None


async def ask(outside: Outside) -> tuple[str | None, int]:
    """The answer to one message, and how often the provider was asked for it."""
    sent = await outside.harness.clients[0].send_message("new", "script:plain please")
    watchers = [outside.harness.watch(sent.conversation_id, ingress=n, cuts=n or None) for n in range(2)]
    for watcher in watchers:
        await watcher.wait_ended(sent.turn_id)
        await wait_rest(watcher)
    state = await outside.harness.check_invariants(sent.conversation_id, *watchers)
    return state.turns[-1].answer, len(outside.provider.received)


async def test_a_provider_that_refuses_for_a_while_is_retried(outside: Outside) -> None:
    outside.provider.forget()
    outside.provider.answer_error(429, {"error": {"message": "Slow down."}}, retry_after="1")
    outside.provider.answer_error(500, {"error": {"message": "Broken."}})
    outside.provider.answer_error(529, {"error": {"message": "Overloaded."}})
    say(outside, ANSWER)

    assert await ask(outside) == ("From the provider.", 4)


async def test_a_provider_with_a_long_retry_after_is_replaced_at_once(outside: Outside) -> None:
    outside.provider.forget()
    outside.provider.answer_error(429, {"error": {"message": "Come back later."}}, retry_after="3600")

    assert await ask(outside) == ("A plain answer.", 1)


@pytest.mark.slow
async def test_an_unreachable_provider_is_replaced(outside: Outside) -> None:
    outside.to_model.refuse()

    assert await ask(outside) == ("A plain answer.", 0)


async def test_the_shown_part_of_an_interrupted_reply_is_rewound(outside: Outside) -> None:
    outside.provider.forget()
    begun = build_openai_events(ANSWER.partition("the provider")[0])[0]
    outside.provider.answer(Answer([begun.encode()], cut=True))
    say(outside, ANSWER)

    assert await ask(outside) == ("From the provider.", 2)


async def test_without_a_fallback_a_failed_provider_fails_the_turn(outside: Outside) -> None:
    await outside.harness.platform.restart("worker-1", extra_env={"EVERTURN_FALLBACK_MODEL": ""})
    outside.provider.forget()
    outside.provider.answer_error(429, {"error": {"message": "Too many."}}, retry_after="3600")
    sent = await outside.harness.clients[0].send_message("new", "script:plain please")
    watcher = outside.harness.watch(sent.conversation_id)

    failed = await watcher.wait_ended(sent.turn_id)
    tries = len(outside.provider.received)
    outside.provider.forget()
    say(outside, ANSWER)
    again = await outside.harness.clients[0].send_message(sent.conversation_id, "script:plain please")
    answered = await watcher.wait_ended(again.turn_id)

    assert failed.error is not None
    assert (failed.status, failed.error.type) == ("failed", "urn:everturn:problem:model-unavailable")
    assert tries == 1
    assert (answered.status, answered.answer) == ("completed", "From the provider.")
    await outside.harness.check_invariants(sent.conversation_id, watcher)
