"""Operations of a bundle in a real process of their own: results and refusals, and code that hangs, crashes or floods
beside a running turn of the same bundle."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.event_loop import watch_loop
from structlog.testing import capture_logs
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.replies import answer

from chat_proc.bundles.host import operations as module
from chat_proc.bundles.host.host import BundleHost, open_bundle_host
from chat_proc.bundles.host.host_process import BundleCode, HostOptions, HostUnavailable
from chat_proc.bundles.host.operations import BundleOperations
from chat_proc.tools.hosted import read_operations
from everturn.bundles.operations import OperationReply, OperationRequest
from everturn.core.errors import Invalid
from everturn.core.identity import Principal, Role
from everturn.core.loops import LOOPS
from everturn.timeline.blocks import CompletionBody

pytestmark = [pytest.mark.sandbox, pytest.mark.sampled]

ANN = Principal("acme", "one", "ann", frozenset({Role.REGISTERED}))
WORKFLOW = '''
import asyncio, os, signal, sys, time
from typing import Literal
from everturn_sdk import *

def count(name: str) -> int:
    """How often it was called, across processes."""
    with open(f"{os.environ['HOME']}/{name}", "a+") as file:
        file.write("x")
        file.seek(0)
        return len(file.read())

class Desk(BaseWorkflow):
    def on_bundle_load(self):
        self.city = get_plain("city")

    async def run(self, payload):
        react = await self.build_react()
        await self.step("wait", asyncio.sleep, float(payload.text), effect="irreversible")
        return await react.run(payload)

    @operation(effect="pure")
    async def look(self, context: OperationContext, name: str, limit: int = 3) -> dict:
        """Looks."""
        return {"by": context.user_id, "roles": context.roles, "name": name, "limit": limit, "city": self.city,
                "pid": os.getpid()}

    @operation(roles=["admin"])
    def close(self) -> None:
        """Closes."""

    @operation()
    def refuse(self) -> None:
        """Refuses."""
        raise OperationError("There is no such ticket: sesame-sesame.")

    @operation()
    def pick(self, word: Literal["sesame-sesame"]) -> None:
        """Has a secret in its signature."""

    @operation()
    def fail(self) -> None:
        """Raises."""
        raise KeyError(get_secret("b:key"))

    @operation(effect="pure")
    def tell(self) -> str:
        """Returns a secret."""
        return get_secret("b:key")

    @operation()
    async def answer(self) -> str:
        """Needs a turn."""
        return str(await (await self.build_react()).run("Hi"))

    @operation()
    def big(self, mib: int) -> str:
        """Returns much."""
        return "x" * (mib * 1024 * 1024)

    @operation()
    def big_without_limit(self) -> str:
        """Returns much, after it has changed the limit of its SDK."""
        import __main__
        __main__.MAX_OPERATION_RESULT_BYTES = 1 << 30
        return "x" * (1024 * 1024)

    @operation()
    def strange(self) -> object:
        """Returns what is no JSON."""
        return object()

    @operation()
    def huge(self) -> int:
        """Returns what can't be read."""
        return 10 ** 5_000

    @operation()
    async def forge(self, what: str) -> None:
        """Sends its own end."""
        from everturn_sdk.protocol import Ended, encode_message
        if what == "text":
            frames = encode_message(Ended.model_construct(kind="ended", number=1, status="notice", error="x" * 200_000))
        else:
            content = what.encode()
            frames = (0x80000000 | len(content)).to_bytes(4, "big") + content
            frames += encode_message(Ended(number=1, status="ok", content_bytes=len(content)))
        os.write(int(sys.argv[1]), frames)
        await asyncio.sleep(60)

    @operation(timeout_s=0.5)
    async def sleep(self) -> None:
        """Waits."""
        try:
            await asyncio.sleep(60)
        finally:
            print("it was ended")

    @operation(timeout_s=0.5)
    def spin(self) -> None:
        """Never returns."""
        while True:
            time.sleep(0.01)

    @operation(timeout_s=45)
    async def sleep_long(self) -> None:
        """Waits."""
        await asyncio.sleep(60)

    @operation(timeout_s=10)
    async def block(self) -> None:
        """Blocks the event loop."""
        time.sleep(60)

    @operation()
    def crash(self) -> None:
        """Crashes."""
        count("crash")
        os.kill(os.getpid(), signal.SIGKILL)

    @operation(effect="idempotent")
    def crash_once(self) -> int:
        """Crashes at the first call."""
        if count("once") == 1:
            os._exit(7)
        return count("once")

    @operation()
    async def flood(self) -> None:
        """Writes without an end."""
        while True:
            sys.stderr.write("x" * 100_000 + "\\n")
            await asyncio.sleep(0)

    @operation(effect="pure")
    def counted(self, name: str) -> int:
        """How often something was called."""
        return count(name) - 1
'''


class Desk:
    """A bundle with its two processes."""

    def __init__(self, host: BundleHost, operations: BundleOperations) -> None:
        self.host = host
        self.operations = operations

    async def call(self, name: str, /, timeout_s: float = 30.0, **arguments: Any) -> OperationReply:
        request = OperationRequest("r1", "desk", name, ANN, timeout_s, json.dumps(arguments).encode())
        return await self.operations.execute(request)

    async def pid(self) -> int:
        reply = await self.call("look", name="x")
        assert reply.outcome == "ok", reply
        return json.loads(reply.result)["pid"]


Open = Callable[..., Awaitable[Desk]]


@pytest.fixture
async def open_desk(options: HostOptions) -> AsyncGenerator[Open]:
    async with AsyncExitStack() as stack:

        async def open_one(idle_s: float = 60.0, source: str = WORKFLOW, **changes: Any) -> Desk:
            code = BundleCode(
                "desk",
                "0" * 64,
                {"workflow.py": source.encode()},
                settings={"city": "Ulm"},
                secrets={"key": "sesame-sesame"},
            )
            open_host = partial(open_bundle_host, code, replace(options, **changes))
            host = await stack.enter_async_context(open_host())
            operations = BundleOperations(read_operations(host.description), open_host, idle_s=idle_s)
            stack.push_async_callback(operations.close)
            return Desk(host, operations)

        yield open_one


async def test_an_operation_returns_its_result(open_desk: Open):
    reply = await (await open_desk()).call("look", name="bü")

    result = json.loads(reply.result)
    assert reply.outcome == "ok"
    assert result.pop("pid") > 0
    assert result == {"by": "ann", "roles": ["registered"], "name": "bü", "limit": 3, "city": "Ulm"}


async def test_what_is_no_result_is_explained(open_desk: Open):
    desk = await open_desk()

    assert await desk.call("close") == OperationReply("forbidden")
    assert await desk.call("other") == OperationReply("unknown")
    assert await desk.call("refuse") == OperationReply("refused", detail="There is no such ticket: [redacted].")
    assert await desk.call("look", limit="x", more=1) == OperationReply(
        "invalid",
        fields=(
            ("name", "Field required"),
            ("limit", "Input should be a valid integer, unable to parse string as an integer"),
            ("more", "Extra inputs are not permitted"),
        ),
    )
    assert await desk.call("pick", word="x") == OperationReply(
        "invalid", fields=(("word", "Input should be '[redacted]'"),)
    )
    for name, why in (
        ("fail", "KeyError: '[redacted]' (workflow.py, line"),
        ("answer", "everturn_sdk.workflows.WorkflowError: This works only while a turn runs"),
        ("strange", "TypeError: its result can't be sent as JSON"),
        ("huge", "Its result is not JSON: "),
    ):
        reply = await desk.call(name)
        assert (reply.outcome, reply.detail[: len(why)]) == ("failed", why)
    assert (await desk.call("tell")).result == b'"[redacted]"'


@pytest.mark.parametrize(
    ("what", "outcome", "why"),
    [
        ("NaN", "failed", "Its result is not JSON: "),
        ("[1e999]", "ok", ""),
        ("text", "lost", "The reason: what it sent is no message: ended.error: String should have at most 12192"),
    ],
)
async def test_what_the_sdk_would_not_send_is_not_passed_on(open_desk: Open, what: str, outcome: str, why: str):
    reply = await (await open_desk()).call("forge", what=what)

    assert (reply.outcome, reply.detail[: len(why)]) == (outcome, why)
    assert reply.result == (b"[null]" if outcome == "ok" else b"null")


async def test_a_result_has_a_limit(open_desk: Open):
    desk = await open_desk()
    pid = await desk.pid()

    for mib in (2, 20, 100):
        reply = await desk.call("big", mib=mib)
        assert reply.outcome == "failed"
        assert reply.detail == f"Its result has {mib * 1024 * 1024 + 2} bytes as JSON; at most 1048576 are allowed."
    assert len((await desk.call("big", mib=0)).result) == 2
    forced = await desk.call("big_without_limit")
    assert (forced.outcome, forced.detail) == ("failed", "Its result has 1048578 bytes.")
    assert await desk.pid() == pid


async def test_a_time_limit_ends_the_operation_and_a_stuck_one_its_process(open_desk: Open):
    desk = await open_desk(cancel_grace_s=0.3)
    pid = await desk.pid()

    with capture_logs() as logs:
        assert (await desk.call("sleep")).outcome == "timeout"
        await until(lambda: any(log.get("text") == "it was ended" for log in logs))
    assert await desk.pid() == pid
    assert (await desk.call("look", timeout_s=0.0, name="x")).outcome in ("timeout", "unavailable")
    with capture_logs() as logs:
        assert (await desk.call("spin")).outcome == "timeout"
        await until(lambda: any(log.get("reason") == "stuck" for log in logs))
    assert await desk.pid() != pid


@pytest.mark.parametrize(("name", "callers_limit_s"), [("sleep", 45), ("sleep_long", 0.5)])
async def test_the_lower_of_two_time_limits_counts(open_desk: Open, name: str, callers_limit_s: float):
    desk = await open_desk()
    await desk.pid()

    async with asyncio.timeout(10):
        assert (await desk.call(name, timeout_s=callers_limit_s)).outcome == "timeout"


async def test_a_crash_is_a_lost_operation_that_is_repeated_only_if_that_does_no_harm(open_desk: Open):
    desk = await open_desk()

    crashed = await desk.call("crash")

    assert (crashed.outcome, crashed.detail) == ("lost", "The reason: it was killed by signal 9.")
    assert (await desk.call("counted", name="crash")).result == b"1"
    assert (await desk.call("crash_once")).result == b"3"


async def test_a_lost_operation_that_can_not_be_repeated_is_not_called_unexecuted(
    open_desk: Open, monkeypatch: pytest.MonkeyPatch
):
    desk = await open_desk()
    await desk.pid()
    assert desk.operations._ready is not None

    async def pause() -> None:
        raise HostUnavailable("It starts again in 30 s.")

    monkeypatch.setattr(desk.operations._ready.result(), "_pause", pause)

    assert (await desk.call("crash_once")).outcome == "lost"
    assert (await desk.call("crash_once")).outcome == "unavailable"


@pytest.mark.parametrize("name", ["crash", "block", "flood", "spin", "big"])
async def test_a_turn_beside_it_notices_nothing(open_desk: Open, name: str):
    desk = await open_desk(blocked_after_s=0.6, cancel_grace_s=0.3)
    await desk.pid()
    bench = Bench(answer("Hello!"), authored=desk.host)
    await bench.say("2.5")
    turn = asyncio.create_task(bench.work())
    arguments: Mapping[str, Any] = {"mib": 100} if name == "big" else {}
    ended: list[OperationReply] = []

    async with watch_loop() as loop:
        while not turn.done():
            one = asyncio.gather(*(desk.call(name, timeout_s=1, **arguments) for _ in range(3)))
            await asyncio.wait({one, turn}, return_when=asyncio.FIRST_COMPLETED)
            if one.done():
                ended += one.result()
            one.cancel()
    await turn

    await check_conversation(bench)
    assert ended
    assert not [reply for reply in ended if reply.outcome == "ok"]
    assert bench.texts(CompletionBody) == ["Hello!"]
    # The step of the turn is irreversible, so it would have been ambiguous if its process had ended.
    assert [process.end_kind for process in desk.host._running.values()] == [None]
    assert loop.longest_s < 0.25


async def test_an_unused_process_ends_and_the_next_request_starts_another(open_desk: Open):
    desk = await open_desk(idle_s=0.2)
    before = await desk.pid()
    with capture_logs() as logs:
        await until(lambda: desk.operations._ready is None)
    pids = set(await asyncio.gather(*(desk.pid() for _ in range(5))))

    assert not [log for log in logs if log["log_level"] in ("warning", "error")]
    assert len(pids) == 1
    assert before not in pids


async def test_a_process_that_cannot_be_started_is_not_started_by_each_request(
    open_desk: Open, monkeypatch: pytest.MonkeyPatch
):
    desk = await open_desk()
    starts: list[int] = []

    class Broken:
        async def __aenter__(self) -> BundleHost:
            starts.append(1)
            raise Invalid("no space")

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(module, "RETRY_S", 0.2)
    desk.operations._open_host = Broken  # type: ignore[assignment]
    replies = [await desk.call("look", name="x") for _ in range(3)]

    assert {(each.outcome, each.detail) for each in replies} == {("unavailable", "It could not be started: no space")}
    assert len(starts) == 1
    await asyncio.sleep(0.3)
    await desk.call("look", name="x")
    assert len(starts) == 2


async def test_requests_are_served_after_an_error_that_nobody_expected(open_desk: Open):
    desk = await open_desk()
    open_host = desk.operations._open_host

    class Broken:
        async def __aenter__(self) -> BundleHost:
            raise RuntimeError("a defect")

        async def __aexit__(self, *_: object) -> None: ...

    desk.operations._open_host = Broken  # type: ignore[assignment]
    reply = await desk.call("look", name="x")
    desk.operations._open_host = open_host

    assert (reply.outcome, reply.detail) == ("unavailable", "It could not be started.")
    assert "operations_process" not in LOOPS.failing, "one bundle makes the worker unready"
    assert (await desk.call("look", name="x")).outcome == "ok"


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        ('@operation(roles=["boss"])', "look: there is no role 'boss'. The roles are: anonymous"),
        ("@operation(timeout_s=100)", "Input should be less than or equal to 45"),
        ("@operation", "takes 0 positional arguments"),
    ],
)
async def test_a_bundle_with_an_unsuitable_operation_is_refused(open_desk: Open, marked: str, why: str):
    source = WORKFLOW.replace('@operation(effect="pure")\n    async def look', f"{marked}\n    async def look")

    with pytest.raises(Invalid) as refused:
        await open_desk(source=source)

    assert why in refused.value.detail


async def test_the_example_of_the_page_is_a_bundle(open_desk: Open, repository: Path):
    page = (repository / "docs/how-to/write-an-operation.md").read_text()

    desk = await open_desk(source=page.partition("```python\n# workflow.py\n")[2].partition("```")[0])

    assert [(each.name, each.summary, each.roles) for each in desk.operations.listings] == [
        ("close_ticket", "Closes a ticket.", ("privileged",)),
        ("list_tickets", "Lists the newest tickets of the caller.", ()),
    ]
