"""What the policy reads of a timeline whose beginning is not in memory. Whole turns: test_addresses_in_turns."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from chat_proc.bundles.policy import BundlePolicy, PolicyRule
from chat_proc.catalog.call_policy import (
    MAX_ASKED_ADDRESSES,
    AddressRules,
    CallContext,
    CallPolicy,
    NeedsApproval,
    Rejected,
)
from chat_proc.catalog.tool import ToolSpec
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.timeline.blocks import (
    Block,
    BlockDraft,
    BlockType,
    Body,
    NotesBody,
    PromptBody,
    ToolResultBody,
    chain_blocks,
)
from everturn.turns.model import Effect
from everturn.turns.ports import BlockPage
from everturn_testing.core import FixedClock
from everturn_testing.in_memory_platform import ConversationRow, MemoryPlatform
from everturn_testing.timeline import NOW
from everturn_testing.turns.conversation_reader import MemoryConversationReader


class AnyParams(BaseModel):
    model_config = ConfigDict(extra="allow")


ANN = Principal("acme", "main", "ann")
CONVERSATION = ConversationId("conv_1")
FETCH = ToolSpec("demo.fetch", "", "", AnyParams, Effect.PURE, addresses=("url", "urls"))
KEEP = ToolSpec("demo.keep", "", "", AnyParams, Effect.PURE, asks_after_untrusted=True)
NEUTRAL = ToolSpec("demo.neutral", "", "", AnyParams, Effect.PURE)
SEEN = "https://a.example/seen"


class OneReader(MemoryConversationReader):
    """Fails the first `failures` reads."""

    failures = 0

    async def load_blocks_before(self, *args: Any, **options: Any) -> BlockPage:
        page = await super().load_blocks_before(*args, **options)
        if self.reads <= self.failures:
            raise Unavailable("no database")
        return page


def build_context(*bodies: tuple[BlockType, Body], loaded: int) -> tuple[CallPolicy, CallContext]:
    """A conversation of these blocks, of which the last `loaded` are in memory."""
    policy, context, _ = build_reading(*bodies, loaded=loaded)
    return policy, context


def build_reading(*bodies: tuple[BlockType, Body], loaded: int) -> tuple[CallPolicy, CallContext, OneReader]:
    drafts = [BlockDraft(TurnId("turn_1"), 1, kind, "ar:x", body, NOW) for kind, body in bodies]
    blocks: tuple[Block, ...] = chain_blocks(drafts, next_seq=1, last_hash="")
    platform = MemoryPlatform(FixedClock())
    row = platform.conversations[CONVERSATION] = ConversationRow(CONVERSATION, ANN)
    row.blocks.extend(blocks)
    reader = OneReader(platform)
    return CallPolicy(AddressRules(), reader), CallContext(ANN, CONVERSATION, blocks[-loaded:]), reader


TYPED = (BlockType.USER_PROMPT, PromptBody(text=f"Read {SEEN}."))
STRANGE = (BlockType.TOOL_RESULT, ToolResultBody(tool_id="demo.find", status="ok", text="x", untrusted=True))
NOTE = (BlockType.NOTES, NotesBody(text=f"see {SEEN}/other"))


@pytest.mark.parametrize("loaded", [1, 2])
async def test_an_address_in_a_summarized_block_counts_as_seen(loaded: int) -> None:
    policy, context = build_context(TYPED, NOTE, loaded=loaded)

    assert await policy.review(FETCH, {"url": SEEN}, context) is None
    assert isinstance(await policy.review(FETCH, {"urls": [SEEN, SEEN + "/other"]}, context), NeedsApproval)


@pytest.mark.parametrize("loaded", [1, 2])
async def test_untrusted_text_in_a_summarized_block_counts(loaded: int) -> None:
    policy, context = build_context(STRANGE, NOTE, loaded=loaded)
    clean, clean_place = build_context(TYPED, NOTE, loaded=loaded)

    assert isinstance(await policy.review(KEEP, {}, context), NeedsApproval)
    assert await clean.review(KEEP, {}, clean_place) is None


async def test_an_approval_lists_a_bounded_number_of_addresses() -> None:
    policy, context = build_context(TYPED, loaded=1)
    urls = [f"https://b.example/{n}" for n in range(MAX_ASKED_ADDRESSES + 1)]

    assert isinstance(await policy.review(FETCH, {"urls": urls}, context), Rejected)
    assert isinstance(await policy.review(FETCH, {"urls": urls[1:]}, context), NeedsApproval)


async def test_another_version_may_have_listed_something_else() -> None:
    odd = ToolResultBody(tool_id="demo.find", status="ok", text="", data={"addresses": [SEEN, 5, None]})
    other = ToolResultBody(tool_id="demo.find", status="ok", text="", data={"addresses": {"a": 1}})
    policy, context = build_context((BlockType.TOOL_RESULT, odd), (BlockType.TOOL_RESULT, other), loaded=2)

    assert await policy.review(FETCH, {"url": SEEN}, context) is None


async def test_the_calls_of_a_turn_read_its_earlier_blocks_once() -> None:
    policy, context, reader = build_reading(TYPED, STRANGE, NOTE, loaded=1)
    urls = [{"url": f"{SEEN}/{n}"} for n in range(10)]

    await asyncio.gather(*(policy.review(FETCH, url, context) for url in urls), policy.review(KEEP, {}, context))

    assert await policy.review(FETCH, {"url": SEEN}, context) is None
    assert isinstance(await policy.review(KEEP, {}, context), NeedsApproval)
    assert reader.reads == 1


async def test_earlier_blocks_that_could_not_be_read_are_read_again() -> None:
    policy, context, reader = build_reading(TYPED, NOTE, loaded=1)
    reader.failures = 1

    with pytest.raises(Unavailable):
        await policy.review(FETCH, {"url": SEEN}, context)

    assert await policy.review(FETCH, {"url": SEEN}, context) is None


def add_rules(policy: CallPolicy, *rules: tuple[str, str]) -> CallPolicy:
    return policy.with_rules(
        BundlePolicy([PolicyRule(tool="*", when=when, then=then, because=f"Because {when}.") for when, then in rules])
    )


async def test_rules_of_a_bundle_add_to_those_of_the_operator() -> None:
    policy, context = build_context(TYPED, loaded=1)
    asking = add_rules(policy, ("args.url == 'x'", "deny"), ("True", "ask"))

    assert await asking.review(FETCH, {"url": SEEN}, context) == NeedsApproval("Because True.")
    both = await asking.review(FETCH, {"url": "https://b.example/"}, context)
    assert isinstance(both, NeedsApproval)
    assert both.addresses == ("https://b.example/",)
    assert both.explanation.startswith("Because True. This address was neither")
    assert isinstance(await asking.review(FETCH, {"url": "x"}, context), Rejected)


async def test_no_rule_of_a_bundle_lifts_one_of_the_operator() -> None:
    policy, context = build_context(STRANGE, loaded=1)
    allowing = add_rules(policy, ("True", "allow"))
    required = replace(KEEP, asks_after_untrusted=False, requires_approval=True)

    assert isinstance(await allowing.review(KEEP, {}, context), NeedsApproval)
    assert isinstance(await allowing.review(required, {}, context), NeedsApproval)
    assert isinstance(await allowing.review(FETCH, {"url": "https://b.example/"}, context), NeedsApproval)


async def test_a_rule_can_ask_once_the_conversation_has_read_untrusted_text() -> None:
    strange, strange_place = build_context(STRANGE, NOTE, loaded=1)
    clean, clean_place = build_context(TYPED, NOTE, loaded=1)

    assert await add_rules(strange, ("untrusted", "ask")).review(NEUTRAL, {}, strange_place) is not None
    assert await add_rules(clean, ("untrusted", "ask")).review(NEUTRAL, {}, clean_place) is None


async def test_a_tool_for_some_hosts_asks_nobody_about_others() -> None:
    spec = replace(FETCH, only_hosts=("a.example", "*.b.example"))
    policy = CallPolicy(AddressRules("open"), MemoryConversationReader(MemoryPlatform()))
    context = CallContext(ANN, CONVERSATION, ())

    for host in ("a.example", "x.b.example"):
        assert await policy.review(spec, {"url": f"https://{host}/"}, context) is None
    for host in ("b.example", "x.a.example", "a.example.evil.example", "evila.example"):
        assert await policy.review(spec, {"urls": [SEEN, f"https://{host}/x"]}, context) == Rejected(
            f"This agent can't request '{host}', only a.example, *.b.example. Nothing was requested."
        )
