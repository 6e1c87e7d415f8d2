"""Decides whether a call is allowed at once, only after a person's approval, or not at all.

The rules check the call and the timeline, never what a text claims about itself: untrusted text can make a model
request a call, but can't exempt the call from approval.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, cast

import structlog

from chat_proc.catalog.tool import CallDetails, EarlierFacts, ToolSpec
from everturn.core.errors import Invalid
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.core.metrics import CALLS_REVIEWED
from everturn.core.urls import canonical_url, host_of
from everturn.timeline.blocks import Block
from everturn.timeline.seen_urls import (
    READ_BLOCKS,
    OutsideFacts,
    find_seen_urls,
    has_untrusted_text,
    read_outside_facts,
)
from everturn.turns.ports import ConversationReader

_log = structlog.get_logger(__name__)

AddressPolicy = Literal["ask", "seen", "open"]
"""Which addresses need no approval: none, those that the conversation has seen, or all."""
MAX_ADDRESSES = 100
"""Maximum per call, in all of its parameters."""
MAX_ASKED_ADDRESSES = 20
"""Maximum per approval; people don't read longer lists."""
MAX_NAMED_HOSTS = 20
"""Hosts that a refusal names."""
MAX_EARLIER_BYTES = 16 * 1024 * 1024
"""Size of older blocks that are searched for an address. Earlier ones count as not seen."""

_AFTER_UNTRUSTED = (
    "This conversation has read files, pages or events that others may have written. They can contain instructions for "
    "the agent, so check that this is what you want."
)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """The operator's rules for addresses. A host is a name, or `*.name` for all names below it. A denied host is never
    requested; an allowed one needs no approval, whatever the rest of the address is."""

    policy: AddressPolicy = "seen"
    allowed_hosts: tuple[str, ...] = ()
    denied_hosts: tuple[str, ...] = ()

    def is_allowed(self, host: str) -> bool:
        return matches_host(host, self.allowed_hosts)

    def is_denied(self, host: str) -> bool:
        return matches_host(host, self.denied_hosts)


@dataclass(frozen=True, slots=True)
class CallContext:
    """The conversation in which a call is made. `blocks` are the loaded ones, the last of the conversation. All calls
    of a turn share `earlier`."""

    principal: Principal
    conversation_id: ConversationId
    blocks: Sequence[Block]
    earlier: EarlierFacts = field(default_factory=EarlierFacts, repr=False)


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """A person has to approve first. `explanation` is for that person, `addresses` are the addresses to approve, and
    `details` say what the call would do. With `connect_url` the person connects an account there instead."""

    explanation: str
    addresses: tuple[str, ...] = ()
    connect_url: str = ""
    details: CallDetails | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """The call is not made, even with approval; `why` is for the model."""

    why: str


class CallRules(Protocol):
    """The rules of a bundle, which add to those of the operator."""

    def needs_taint(self, spec: ToolSpec) -> bool:
        """Whether a rule for this tool depends on `untrusted`."""
        ...

    def judge(
        self, spec: ToolSpec, params: Mapping[str, object], principal: Principal, *, untrusted: bool
    ) -> NeedsApproval | Rejected | None: ...


class CallPolicy:
    """Holds the operator's rules, and those of a bundle; all other facts are read from the timeline.

    A call is reviewed twice: when it is decided on, so that the question to a person is part of that commit, and when
    it is made, because earlier calls of the same reply may have read untrusted text since.
    """

    def __init__(self, rules: AddressRules, reader: ConversationReader, of_bundle: CallRules | None = None) -> None:
        self._rules = rules
        self._reader = reader
        self._of_bundle = of_bundle

    def with_rules(self, of_bundle: CallRules) -> "CallPolicy":
        """The same policy with the rules of a bundle."""
        return CallPolicy(self._rules, self._reader, of_bundle)

    async def review(
        self, spec: ToolSpec, params: Mapping[str, object], context: CallContext
    ) -> NeedsApproval | Rejected | None:
        """Return None if the call is allowed. Raises Unavailable if the older part of the timeline can't be read."""
        explanations: list[str] = []
        addresses: tuple[str, ...] = ()
        is_asked = spec.requires_approval
        if (rules := self._of_bundle) is not None:
            untrusted = rules.needs_taint(spec) and await self._has_untrusted_text(context)
            verdict = rules.judge(spec, params, context.principal, untrusted=untrusted)
            if isinstance(verdict, Rejected):
                return verdict
            if verdict is not None:
                is_asked = True
                explanations += [verdict.explanation] if verdict.explanation else []
        if spec.addresses:
            read = await asyncio.to_thread(self._read_addresses, spec, params)
            if isinstance(read, Rejected):
                return read
            addresses = await self._find_unseen(read, context)
            if len(addresses) > MAX_ASKED_ADDRESSES:
                return Rejected(
                    f"A call may name at most {MAX_ASKED_ADDRESSES} addresses that are new to the conversation."
                )
            explanations += [_explain_addresses(addresses)] if addresses else []
        if spec.asks_after_untrusted and await self._has_untrusted_text(context):
            explanations.append(_AFTER_UNTRUSTED)
        if explanations or is_asked:
            return NeedsApproval(" ".join(explanations), addresses)
        return None

    def _read_addresses(self, spec: ToolSpec, params: Mapping[str, object]) -> tuple[str, ...] | Rejected:
        """The canonical addresses of a call that need a check: those of allowed hosts don't."""
        texts = [text for name in spec.addresses for text in _texts_of(params.get(name))]
        if len(texts) > MAX_ADDRESSES:
            return Rejected(f"A call may name at most {MAX_ADDRESSES} addresses.")
        found: dict[str, None] = {}
        for text in texts:
            try:
                address = canonical_url(text)
            except Invalid as invalid:
                return Rejected(f"{text[:200]!a} can't be requested: {invalid.detail} Nothing was requested.")
            if self._rules.is_denied(host_of(address)):
                return Rejected(f"The operator does not allow {host_of(address)!a}. Nothing was requested.")
            if spec.only_hosts and not matches_host(host_of(address), spec.only_hosts):
                named = ", ".join(spec.only_hosts[:MAX_NAMED_HOSTS])
                return Rejected(f"This agent can't request {host_of(address)!a}, only {named}. Nothing was requested.")
            if not self._rules.is_allowed(host_of(address)):
                found[address] = None
        return tuple(found)

    async def _find_unseen(self, addresses: tuple[str, ...], context: CallContext) -> tuple[str, ...]:
        if not addresses or self._rules.policy == "open":
            return ()
        if self._rules.policy == "ask":
            return addresses
        # In threads: reading and searching the texts of a long conversation would block the event loop.
        blocks = tuple(context.blocks)
        seen = await asyncio.to_thread(lambda: find_seen_urls(read_outside_facts(blocks), addresses))
        left = tuple(address for address in addresses if address not in seen)
        if left and _is_cut(context):
            seen = await asyncio.to_thread(find_seen_urls, await self._load_earlier(context), left)
            left = tuple(address for address in left if address not in seen)
        return left

    async def _has_untrusted_text(self, context: CallContext) -> bool:
        if has_untrusted_text(context.blocks):
            return True
        return _is_cut(context) and (await self._load_earlier(context)).has_untrusted_text

    async def _load_earlier(self, context: CallContext) -> OutsideFacts:
        """What the blocks before the loaded ones say; loaded once for each turn, because they don't change. Older
        blocks than MAX_EARLIER_BYTES count as untrusted text."""
        earlier = context.earlier
        async with earlier.loading:
            if earlier.facts is None:
                page = await self._reader.load_blocks_before(
                    context.principal,
                    context.conversation_id,
                    context.blocks[0].seq,
                    READ_BLOCKS,
                    max_bytes=MAX_EARLIER_BYTES,
                )
                facts = await asyncio.to_thread(read_outside_facts, page.blocks)
                earlier.facts = replace(facts, has_untrusted_text=page.more or facts.has_untrusted_text)
            return earlier.facts


def report_refusal(spec: ToolSpec, context: CallContext, why: str) -> None:
    """Log and count a call that was not made because of the policy."""
    CALLS_REVIEWED.labels(spec.tool_id, "refused").inc()
    _log.info("Rejected a tool call", tool_id=spec.tool_id, conversation_id=context.conversation_id, why=why)


def _is_cut(context: CallContext) -> bool:
    """Whether the loaded blocks begin with a summary of older ones."""
    return bool(context.blocks) and context.blocks[0].seq > 1


def _texts_of(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = cast("Collection[object]", value) if isinstance(value, list | tuple) else ()
    return [item for item in items if isinstance(item, str)]


def matches_host(host: str, patterns: Collection[str]) -> bool:
    """Whether the host has one of these names, or is below one of those that begin with `*.`."""
    host = host.rstrip(".")
    return any(host.endswith(each[1:]) if each.startswith("*.") else host == each for each in patterns)


def _explain_addresses(addresses: tuple[str, ...]) -> str:
    many = "These addresses were" if len(addresses) > 1 else "This address was"
    return (
        f"{many} neither written by you nor found by a search or on a page of this conversation. "
        f"An address can carry data to its server. Allow it only if you know why it is needed:\n" + "\n".join(addresses)
    )
