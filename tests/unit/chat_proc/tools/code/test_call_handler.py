"""How calls of one run share a worker, and what becomes of tools that don't listen. The replies: see test_calls."""

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest
from pydantic import BaseModel
from turn_harness.programs import ScriptedTool, build_parts
from turn_harness.tools import DeafTool, DemoTool

from chat_proc.catalog.call_policy import AddressRules, CallPolicy
from chat_proc.catalog.tool import ToolContext, ToolOutcome
from chat_proc.tools.code.program_calls import MAX_SIDE_BY_SIDE, CallHandler, ProgramDependencies, ProgramTools
from everturn.core.cancellation import Stragglers
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.execution.messages import GatewayCall, ToolReply
from everturn.timeline.blocks import Block, BlockDraft, BlockType, PromptBody, chain_blocks
from everturn.turns.ports import EffectKey
from everturn_testing.files.stored_files import OWNER
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.live_turn import RecordingTurn


def build_answerer(tool: DemoTool, parts: ProgramDependencies) -> CallHandler:
    context = ToolContext(
        OWNER, ConversationId("conv_1"), TurnId("turn_1"), 1, (), NOW, MemorySourcePool(), live=RecordingTurn()
    )
    return CallHandler(ProgramTools([tool], parts), context)


async def ask(answerer: CallHandler, number: int = 1) -> ToolReply:
    key = EffectKey(TurnId("turn_1"), CallId("call_1"), "demo.echo", "a" * 64, number)
    given = await answerer.answer(GatewayCall(number, "demo.echo", {}), key, CallId(f"call_1-{number}"))
    return given.reply


async def test_only_so_many_calls_of_a_run_work_at_a_time() -> None:
    tool = DemoTool(in_programs=True)
    tool.go_on.clear()
    answerer = build_answerer(tool, build_parts())

    asked = [asyncio.create_task(ask(answerer, number)) for number in range(MAX_SIDE_BY_SIDE + 3)]
    await tool.started.wait()
    await asyncio.sleep(0)
    working = tool.calls.total()
    tool.go_on.set()
    replies = await asyncio.gather(*asked)

    assert working == MAX_SIDE_BY_SIDE
    assert [reply.ok for reply in replies] == [True] * (MAX_SIDE_BY_SIDE + 3)


async def test_a_program_gets_a_reply_if_a_tool_ignores_cancellation() -> None:
    tool = DeafTool(timeout_s=0.01, in_programs=True)
    tool.go_on.clear()
    leftovers = Stragglers(grace_s=0.01)
    parts = build_parts()
    answerer = build_answerer(tool, ProgramDependencies(parts.ledger, parts.policy, leftovers))

    reply = await ask(answerer)

    assert (reply.error_code, leftovers.count) == ("timeout", 1)
    tool.go_on.set()
    await leftovers.close(1.0)


async def test_the_runs_of_a_turn_read_its_earlier_blocks_once() -> None:
    reader = MemoryConversationReader(MemoryPlatform())
    parts = ProgramDependencies(build_parts().ledger, CallPolicy(AddressRules(), reader))
    prompt = BlockDraft(TurnId("turn_1"), 0, BlockType.USER_PROMPT, "ar:x", PromptBody(text="Go on."), NOW)
    context = ToolContext(
        OWNER,
        ConversationId("conv_1"),
        TurnId("turn_1"),
        1,
        chain_blocks([prompt], next_seq=7, last_hash=""),
        NOW,
        MemorySourcePool(),
        live=RecordingTurn(),
    )
    tools = ProgramTools([ScriptedTool(addresses=("text",))], parts)
    runs = [CallHandler(tools, replace(context, round=number)) for number in (1, 2)]
    key = EffectKey(TurnId("turn_1"), CallId("call_1"), "demo.echo", "a" * 64, 1)
    request = GatewayCall(1, "demo.echo", {"text": "https://a.example"})

    given = [await run.answer(request, key, CallId("call_1-1")) for run in runs for _ in range(2)]

    assert {each.reply.error_code for each in given} == {"not_allowed"}
    assert reader.reads == 1


class StrictParams(BaseModel):
    count: int = 0
    sure: bool = False
    at: datetime | None = None
    names: tuple[str, ...] = ()
    body: bytes = b""


@pytest.mark.parametrize(
    ("arguments", "ok"),
    [
        ({"count": 5, "sure": True, "at": "2026-03-01T12:00:00Z", "names": ["a"]}, True),
        ({"body": b"\x00", "count": 5}, True),
        ({"count": "5"}, False),
        ({"count": 5.0}, False),
        ({"count": True}, False),
        ({"sure": 1}, False),
        ({"sure": "yes"}, False),
        ({"names": [1]}, False),
        ({"body": b"\x00", "count": "5"}, False),
    ],
)
async def test_no_argument_of_a_program_is_taken_for_something_else(arguments: dict[str, object], ok: bool) -> None:
    tool = ScriptedTool("demo.send", lambda _: ToolOutcome("ok", "sent"), params=StrictParams)
    context = ToolContext(
        OWNER, ConversationId("conv_1"), TurnId("turn_1"), 1, (), NOW, MemorySourcePool(), live=RecordingTurn()
    )
    answerer = CallHandler(ProgramTools([tool], build_parts()), context)
    key = EffectKey(TurnId("turn_1"), CallId("call_1"), "demo.send", "a" * 64, 1)

    given = await answerer.answer(GatewayCall(1, "demo.send", arguments), key, CallId("call_1-1"))

    assert (given.reply.ok, tool.done) == (ok, int(ok))
    assert given.reply.error_code == ("" if ok else "bad_arguments")


class FetchParams(BaseModel):
    urls: list[str]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://a.example/seen", ""),
        ("https://a.example/seen?d=secret", "not_allowed"),
        ("https://b.example/", "not_allowed"),
        ("https://x@a.example/seen", "not_allowed"),
        ("ftp://a.example/seen", "not_allowed"),
        ("https://" + "\ufdfa" * 340_000, "not_allowed"),
    ],
)
async def test_a_program_reaches_only_what_its_conversation_has_seen(url: str, code: str) -> None:
    fetch = ScriptedTool("web.fetch", lambda _: ToolOutcome("ok", "page"), params=FetchParams, addresses=("urls",))
    typed = draft_block("Read https://a.example/seen.")
    context = ToolContext(
        OWNER, ConversationId("conv_1"), TurnId("turn_1"), 1, typed, NOW, MemorySourcePool(), live=RecordingTurn()
    )
    answerer = CallHandler(ProgramTools([fetch], build_parts()), context)
    key = EffectKey(TurnId("turn_1"), CallId("call_1"), "web.fetch", "a" * 64, 1)

    given = await answerer.answer(GatewayCall(1, "web.fetch", {"urls": [url]}), key, CallId("call_1-1"))

    assert (given.reply.error_code, fetch.done) == (code, int(not code))


def draft_block(text: str) -> tuple[Block, ...]:
    draft = BlockDraft(TurnId("turn_1"), 0, BlockType.USER_PROMPT, "ar:turn_1.user.prompt", PromptBody(text=text), NOW)
    return chain_blocks([draft], next_seq=1, last_hash="")


@pytest.mark.parametrize("asks", [{"requires_approval": True}, {"asks_after_untrusted": True}])
def test_a_tool_that_may_have_to_ask_is_none_of_programs(asks: dict[str, bool]) -> None:
    assert ProgramTools([ScriptedTool(**asks)], build_parts()).specs == ()
