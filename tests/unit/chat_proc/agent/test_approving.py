"""Calls that need approval: the turn waits and continues after the answer, also when workers die."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Never, cast

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench, until
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent.approving import MAX_SHOWN_BYTES, ApprovalGate
from chat_proc.agent.kit import TurnLimits
from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.tool import CallDetails, ConnectLink, Proposal, ToolCall, ToolOutcome, ToolRegistry
from chat_proc.worker import runner
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ApprovalId, CallId
from everturn.events.model import ChatApproval, ChatRewind, ConvStatus
from everturn.mcp_connections.connections import REQUEST_S
from everturn.timeline.blocks import ApprovalOutcomeBody, ApprovalRequestBody, CompletionBody, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind, SignalState, TurnStatus
from everturn.turns.inbox import IncomingSignal
from everturn.turns.model import ApprovalState, Commit, Effect, EffectState
from everturn.turns.ports import InboxMoved
from everturn_testing.turns.approvals import expire_approvals

DAY_S = 86_400


def build(*, text: str = "x", limits: TurnLimits | None = None) -> tuple[Bench, DemoTool]:
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, requires_approval=True)
    return Bench(call("demo.send", {"text": text}), answer("Done."), tools=[send], limits=limits), send


def pending(bench: Bench) -> list[ApprovalId]:
    requests = [block.body for block in bench.blocks if isinstance(block.body, ApprovalRequestBody)]
    settled = {each.approval_id for each in outcomes(bench)}
    return [request.approval_id for request in requests if request.approval_id not in settled]


def outcomes(bench: Bench) -> list[ApprovalOutcomeBody]:
    return [block.body for block in bench.blocks if isinstance(block.body, ApprovalOutcomeBody)]


def results(bench: Bench) -> list[ToolResultBody]:
    return [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]


async def respond(bench: Bench, approval_id: ApprovalId, kind: SignalKind, reason: str = "") -> None:
    signal = IncomingSignal(bench.ids.signal(), kind, reason, approval_id=approval_id)
    await bench.inbox.accept_signal(ANN, bench.conversation_id, signal, None)


def start_asking(bench: Bench, tool: DemoTool) -> None:
    """From now on workers have a configuration in which the tool asks first."""
    tool.spec = replace(tool.spec, requires_approval=True)
    bench.registry = ToolRegistry([tool])


async def wait_for_a_person(bench: Bench) -> ApprovalId:
    await bench.say("Send it.")
    await bench.work()
    (approval_id,) = pending(bench)
    return approval_id


async def test_a_call_waits_for_a_person_and_is_then_made_once_as_it_was_asked() -> None:
    bench, send = build()
    approval_id = await wait_for_a_person(bench)
    assert send.calls.total() == 0
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    (shown,) = bench.state().turns[0].approvals
    assert (shown.tool_id, shown.params, shown.state, shown.cut) == ("demo.send", {"text": "x"}, "pending", False)
    bench.keep_snapshot()

    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.work()

    assert list(send.effects.values()) == [1]
    assert [result.text for result in results(bench)] == ["echo: x"]
    assert [(each.state, each.signal_id is not None) for each in outcomes(bench)] == [("approved", True)]
    assert [row.signal.state for row in bench.platform.signals.values()] == [SignalState.APPLIED]
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_clients_receive_the_question_and_the_waiting_state() -> None:
    bench, _ = build()

    await wait_for_a_person(bench)

    events = [event.data for event in await bench.published()]
    (asked,) = [data for data in events if isinstance(data, ChatApproval)]
    assert (asked.tool_id, asked.state) == ("demo.send", "pending")
    assert events[-1] == ConvStatus(state="waiting", turn_id=bench.turn_rows[0].id)


async def test_a_turn_whose_question_was_not_published_does_not_wait_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FLUSH_S", 0.05)
    bench, _ = build()
    await bench.say("Send it.")
    bench.events.down = True
    await bench.hire().run_one()
    assert bench.turn_rows[0].status is TurnStatus.QUEUED

    bench.events.down = False
    await bench.work()

    assert bench.turn_rows[0].status is TurnStatus.WAITING
    rewinds = [event.data for event in await bench.published() if isinstance(event.data, ChatRewind)]
    assert [each.state for each in rewinds[-1].turn.approvals] == ["pending"]


async def test_a_denied_call_is_not_made_and_the_model_hears_why() -> None:
    bench, send = build()
    approval_id = await wait_for_a_person(bench)

    await respond(bench, approval_id, SignalKind.DENY, "Not to that address.")
    await bench.work()

    assert send.calls.total() == 0
    (result,) = results(bench)
    assert result.status == "cancelled"
    assert "The user denied this call" in result.text
    assert "Not to that address." in str(bench.model.requests[1])
    assert [row.state for row in bench.platform.effects.values()] == [EffectState.FAILED]
    assert bench.state().turns[0].approvals[0].reason == "Not to that address."
    assert bench.texts(CompletionBody) == ["Done."]
    await check_conversation(bench)


async def test_no_answer_in_time_is_a_denial() -> None:
    bench, send = build()
    await wait_for_a_person(bench)
    bench.clock.advance(DAY_S + 1)
    assert expire_approvals(bench.platform) == (bench.conversation_id,)

    await bench.work()

    assert send.calls.total() == 0
    assert [each.state for each in outcomes(bench)] == ["expired"]
    assert "did not answer in time" in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_a_cancel_ends_a_waiting_turn() -> None:
    bench, send = build()
    await wait_for_a_person(bench)

    await bench.signal(SignalKind.CANCEL)
    await bench.work()

    assert send.calls.total() == 0
    assert bench.turn_rows[0].status is TurnStatus.CANCELLED
    assert bench.state().turns[0].approvals[0].state == "withdrawn"
    await check_conversation(bench)


async def test_a_cancel_after_the_approval_still_stops_the_call() -> None:
    bench, send = build()
    approval_id = await wait_for_a_person(bench)

    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.signal(SignalKind.CANCEL)
    await bench.work()

    assert send.calls.total() == 0
    assert bench.turn_rows[0].status is TurnStatus.CANCELLED
    assert {row.signal.state for row in bench.platform.signals.values()} == {SignalState.APPLIED}
    await check_conversation(bench)


async def test_a_steer_takes_the_question_back() -> None:
    bench, send = build()
    await wait_for_a_person(bench)

    await bench.signal(SignalKind.STEER, "Forget the mail.")
    await bench.work()

    assert send.calls.total() == 0
    assert [each.state for each in outcomes(bench)] == ["withdrawn"]
    assert "Forget the mail." in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_a_followup_waits_with_the_turn_for_the_approval() -> None:
    bench, send = build()
    approval_id = await wait_for_a_person(bench)
    await bench.say("And tell Bob.")
    await bench.work()
    assert [row.signal.state for row in bench.platform.signals.values()] == [SignalState.ACCEPTED]

    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.work()

    assert send.calls.total() == 1
    assert "And tell Bob." in str(bench.model.requests[1])
    await check_conversation(bench)


@pytest.mark.parametrize("first", [0, 1])
async def test_two_questions_of_a_round_can_be_answered_in_any_order(first: int) -> None:
    tools = [DemoTool(f"demo.{name}", strategy="neutral", requires_approval=True) for name in ("send", "pay")]
    both = call("demo.send", {"text": "a"}) + call("demo.pay", {"text": "b"})
    bench = Bench(both, answer("Done."), tools=tools, fanout=True)
    await bench.say("Do both.")
    await bench.work()
    asked = pending(bench)
    assert len(asked) == 2

    await respond(bench, asked[first], SignalKind.APPROVE)
    await bench.work()
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    await respond(bench, asked[1 - first], SignalKind.DENY)
    await bench.work()

    assert [tool.calls.total() for tool in tools] == ([1, 0] if first == 0 else [0, 1])
    await check_conversation(bench)


@pytest.mark.parametrize("steers", [False, True])
async def test_a_worker_crash_after_the_approval_leaves_the_call_ambiguous(*, steers: bool) -> None:
    bench, send = build()
    approval_id = await wait_for_a_person(bench)
    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.hire(failpoint="turn.approved:1:raise").work()
    bench.expire_lease()
    if steers:
        await bench.signal(SignalKind.STEER, "Answer now.")

    await bench.work()

    assert send.calls.total() == 0
    assert [result.status for result in results(bench)] == ["ambiguous"]
    await check_conversation(bench)


@pytest.mark.parametrize("before", ["", "turn.after_c1:1:raise"])
@pytest.mark.parametrize("after", ["turn.approved", "turn.in_tool", "turn.before_c2", "turn.after_c2"])
async def test_an_approved_call_is_made_at_most_once_despite_crashes(before: str, after: str) -> None:
    bench, send = build()
    await bench.say("Send it.")
    await bench.hire(failpoint=before).work()
    bench.expire_lease()
    await bench.work()
    (approval_id,) = pending(bench)
    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.hire(failpoint=f"{after}:1:raise").work()
    bench.expire_lease()

    await bench.work()

    assert send.effects.total() == (0 if after in ("turn.approved", "turn.in_tool") else 1)
    assert len(results(bench)) == 1
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench, ends_may_repeat=True)


@pytest.mark.parametrize("effect", list(Effect))
@pytest.mark.parametrize("died", ["turn.in_tool", "turn.before_c2"])
async def test_a_call_begun_before_approval_was_required_is_not_repeated(effect: Effect, died: str) -> None:
    send = DemoTool("demo.send", effect=effect)
    bench = Bench(call("demo.send", {"text": "x"}), answer("Done."), tools=[send])
    await bench.say("Send it.")
    await bench.hire(failpoint=f"{died}:1:raise").work()
    began = send.effects.total()
    bench.expire_lease()
    start_asking(bench, send)

    await bench.work()

    assert send.effects.total() == began
    assert pending(bench) == outcomes(bench) == []
    (result,) = results(bench)
    assert result.status == ("ambiguous" if effect is Effect.IRREVERSIBLE else "error")
    assert "The worker stopped during this call." in str(bench.model.requests[1])
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_call_that_was_begun_is_not_reported_as_never_made_when_its_review_fails(
    effect: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = DemoTool("demo.send", effect=effect)
    bench = Bench(call("demo.send", {"text": "x"}), answer("Done."), tools=[send])
    await bench.say("Send it.")
    await bench.hire(failpoint="turn.in_tool:1:raise").work()
    bench.expire_lease()

    async def fail(*_: object) -> Never:
        raise Unavailable("The rules can't be read.")

    monkeypatch.setattr(CallPolicy, "review", fail)
    await bench.work()

    (result,) = results(bench)
    assert result.status == ("ambiguous" if effect is Effect.IRREVERSIBLE else "error")
    assert result.text.startswith("The worker stopped during this call")
    await check_conversation(bench)


async def test_calls_that_were_not_begun_before_their_tool_asks_are_asked_about() -> None:
    send = DemoTool("demo.send", effect=Effect.IDEMPOTENT, strategy="neutral")
    both = call("demo.send", {"text": "a"}) + call("demo.send", {"text": "b"})
    bench = Bench(both, answer("Done."), tools=[send], fanout=True)
    await bench.say("Send both.")
    await bench.hire(failpoint="turn.before_c2:1:raise").work()
    bench.expire_lease()
    start_asking(bench, send)

    await bench.work()
    (approval_id,) = pending(bench)
    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.work()

    assert [result.status for result in results(bench)] == ["error", "ok"]
    assert list(send.effects.values()) == [1, 1]
    await check_conversation(bench)


async def test_a_call_is_never_on_the_timeline_without_its_question() -> None:
    bench, _ = build()
    await bench.say("Send it.")

    await bench.hire(failpoint="turn.after_c1:1:raise").work()

    assert len(pending(bench)) == 1
    assert [row.approval.state for row in bench.platform.approvals.values()] == [ApprovalState.PENDING]


async def test_waiting_uses_up_no_time_of_the_turn() -> None:
    bench, send = build(limits=TurnLimits(wall_time_s=60))
    approval_id = await wait_for_a_person(bench)
    bench.clock.advance(DAY_S / 2)

    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.work()

    assert send.calls.total() == 1
    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.exits[0].elapsed_ms >= DAY_S / 2 * 1000
    await check_conversation(bench)


async def test_a_call_whose_result_could_not_be_written_is_not_made_again() -> None:
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, requires_approval=True)
    bench = Bench(call("demo.send", {"text": "x"}), answer("Done."), tools=[send])
    await respond(bench, await wait_for_a_person(bench), SignalKind.APPROVE)
    worker = bench.hire()

    async def move_inbox(commit: Commit) -> None:
        if send.calls.total() and not bench.exits:
            worker.timelines.before_commit = None
            raise InboxMoved(99)

    worker.timelines.before_commit = move_inbox
    worker.may_crash = True
    await worker.run_one()
    assert send.calls.total() == 1
    bench.expire_lease()
    await bench.work()

    assert list(send.calls.values()) == [1]
    assert [result.status for result in results(bench)] == ["ambiguous"]


async def test_parameters_that_are_too_long_to_show_are_cut_and_say_so() -> None:
    bench, send = build(text="z" * (MAX_SHOWN_BYTES + 1))
    approval_id = await wait_for_a_person(bench)

    (shown,) = bench.state().turns[0].approvals
    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.work()

    assert shown.cut
    assert len(shown.params["text"]) < MAX_SHOWN_BYTES
    assert send.calls.total() == 1


class AnAccount:
    """A connector whose person connects an account when they are asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_connected = False
        self.why = ""

    async def find_link(self, call_id: str, principal: Principal, conversation_id: str) -> ConnectLink | None:
        if self.is_connected:
            return None
        self.asked.append(call_id)
        return ConnectLink("Example Mail", "https://login.example/authorize?state=secret-of-the-link", self.why)


def build_personal(*, requires_approval: bool) -> tuple[Bench, DemoTool, AnAccount]:
    send, account = DemoTool("demo.send", requires_approval=requires_approval), AnAccount()
    send.spec = replace(send.spec, connector=account)
    calls = [call("demo.send", {"text": "x"})] * (2 if requires_approval else 1)
    return Bench(*calls, answer("Done."), tools=[send]), send, account


@pytest.mark.parametrize("why", ["", "Your last sign-in there was interrupted."])
async def test_a_call_waits_ten_minutes_for_an_account(why: str) -> None:
    bench, send, account = build_personal(requires_approval=False)
    account.why = why
    approval_id = await wait_for_a_person(bench)
    (shown,) = bench.state().turns[0].approvals
    assert shown.connect_url == "https://login.example/authorize?state=secret-of-the-link"
    assert shown.explanation == f"To go on, connect your account at Example Mail. {why}".strip()
    left = datetime.fromisoformat(shown.expires_at) - bench.clock.now()
    assert abs(left.total_seconds() - REQUEST_S) < 5

    account.is_connected = True
    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.work()
    assert send.calls.total() == 1 and len(account.asked) == 1
    assert "secret-of-the-link" not in str(bench.model.requests)
    await check_conversation(bench)


async def test_calls_of_one_reply_wait_side_by_side_for_their_links() -> None:
    arrived: list[str] = []
    all_here = asyncio.Event()

    class Slow(AnAccount):
        async def find_link(self, call_id: str, principal: Principal, conversation_id: str) -> ConnectLink | None:
            arrived.append(call_id)
            if len(arrived) == 3:
                all_here.set()
            async with asyncio.timeout(5):
                await all_here.wait()
            return await super().find_link(call_id, principal, conversation_id)

    tools = [DemoTool(f"demo.{name}", strategy="exploration") for name in ("mail", "crm", "wiki")]
    account = Slow()
    for tool in tools:
        tool.spec = replace(tool.spec, connector=account)
    calls = "".join(call(tool.spec.tool_id, {"text": "x"}) for tool in tools)
    bench = Bench(calls, answer("Done."), tools=tools, fanout=True)
    await bench.say("Look everywhere.")
    await bench.work()
    assert len(pending(bench)) == 3


async def test_a_turn_is_cancelled_while_a_failed_question_ends_the_others() -> None:
    rolls_back = asyncio.Event()

    class Failing(AnAccount):
        async def find_link(self, call_id: str, principal: Principal, conversation_id: str) -> ConnectLink | None:
            raise RuntimeError("a defect of one connector")

    class RollingBack(AnAccount):
        async def find_link(self, call_id: str, principal: Principal, conversation_id: str) -> ConnectLink | None:
            try:
                await asyncio.Event().wait()
            finally:
                rolls_back.set()
                await asyncio.sleep(0.05)
            raise AssertionError

    class Policy:
        async def review(self, *given: object) -> None: ...

    class Turn:
        call_context = None
        lease = SimpleNamespace(principal=ANN, conversation_id="c")
        inbox = SimpleNamespace(wait_for_control=asyncio.Event().wait)

        async def retry(self, attempt: Callable[[], Awaitable[object]]) -> object:
            return await attempt()

    tools = [DemoTool("demo.mail"), DemoTool("demo.crm")]
    for tool, account in zip(tools, (RollingBack(), Failing()), strict=True):
        tool.spec = replace(tool.spec, connector=account)
    kit = SimpleNamespace(catalog=ToolRegistry(tools), policy=Policy(), approval_timeout_s=DAY_S)
    gate = ApprovalGate(cast(Any, kit), cast(Any, SimpleNamespace(redactor=None)))
    calls = {CallId(tool.spec.tool_id): SimpleNamespace(tool_id=tool.spec.tool_id, params={}) for tool in tools}
    asking = asyncio.create_task(gate.draft_questions(cast(Any, Turn()), cast(Any, calls), cast(Any, None)))

    await rolls_back.wait()
    asking.cancel()
    await asyncio.wait({asking})

    assert asking.cancelled()


@pytest.mark.parametrize("kind", [SignalKind.CANCEL, SignalKind.STEER])
@pytest.mark.parametrize("requires_approval", [False, True])
async def test_a_stop_ends_the_wait_for_an_authorization_server(kind: SignalKind, requires_approval: bool) -> None:
    asked = asyncio.Event()

    class Hanging(AnAccount):
        async def find_link(self, call_id: str, principal: Principal, conversation_id: str) -> ConnectLink | None:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    bench, send, _ = build_personal(requires_approval=requires_approval)
    send.spec = replace(send.spec, connector=Hanging())
    await bench.say("Send it.")
    working = asyncio.create_task(bench.work())
    await asked.wait()
    await bench.signal(kind, "Stop." if kind is SignalKind.STEER else "")
    async with asyncio.timeout(5):
        await (working if kind is SignalKind.CANCEL else until(lambda: len(bench.model.requests) > 1))
    assert send.calls.total() == 0 and [result.status for result in results(bench)] == ["cancelled"]
    assert [each.state for each in outcomes(bench)] == ["withdrawn"] * requires_approval
    working.cancel()
    await asyncio.wait({working})


async def test_nobody_who_connects_an_account_approves_the_call_with_it() -> None:
    bench, send, account = build_personal(requires_approval=True)
    first = await wait_for_a_person(bench)
    account.is_connected = True
    await respond(bench, first, SignalKind.APPROVE)
    await bench.work()
    assert send.calls.total() == 0
    assert ["connecting an account did not approve it" in result.text for result in results(bench)] == [True]

    (second,) = pending(bench)
    assert bench.state().turns[0].approvals[-1].connect_url is None
    await respond(bench, second, SignalKind.APPROVE)
    await bench.work()
    assert send.calls.total() == 1
    await check_conversation(bench)


async def test_a_call_without_an_account_in_time_is_not_made() -> None:
    bench, send, _ = build_personal(requires_approval=False)
    await wait_for_a_person(bench)
    bench.clock.advance(REQUEST_S + 1)
    assert expire_approvals(bench.platform) == (bench.conversation_id,)
    await bench.work()
    assert send.calls.total() == 0 and [each.state for each in outcomes(bench)] == ["expired"]
    await check_conversation(bench)


class Described:
    """Describes calls; as `state` is when it is asked, or not if it `fails`."""

    def __init__(self, send: DemoTool) -> None:
        self.state = "one"
        self.fails = ""
        self.approved: list[str] = []
        run = send.run

        async def keep_approved(call: ToolCall) -> ToolOutcome:
            self.approved.append(call.approved)
            return await run(call)

        send.run = keep_approved
        send.spec = replace(send.spec, describe_call=self.describe)

    async def describe(self, proposal: Proposal) -> CallDetails:
        if self.fails:
            raise Unavailable(self.fails)
        return CallDetails(f"Sends {getattr(proposal.params, 'text')}\nto {self.state}", self.state)  # noqa: B009


async def test_a_person_sees_what_a_call_would_do_and_the_call_knows_what_was_approved() -> None:
    bench, send = build()
    described = Described(send)
    approval_id = await wait_for_a_person(bench)
    (shown,) = bench.state().turns[0].approvals
    assert shown.details == "Sends x\nto one"

    described.state = "two"
    await respond(bench, approval_id, SignalKind.APPROVE)
    await bench.work()

    assert described.approved == ["one"] and send.calls.total() == 1
    await check_conversation(bench)


async def test_nobody_is_asked_about_a_call_that_cant_be_described() -> None:
    bench, send = build()
    described = Described(send)
    described.fails = "The server is away."

    await bench.say("Send it.")
    await bench.work()

    assert [block for block in bench.blocks if isinstance(block.body, ApprovalRequestBody)] == []
    assert send.calls.total() == 0 and [result.text for result in results(bench)] == ["The server is away."]
    await check_conversation(bench)
