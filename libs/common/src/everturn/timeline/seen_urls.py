"""What a conversation's blocks say about the outside world: the addresses it has seen, and whether it has untrusted
text.

Both are folds over the append-only timeline, so every worker computes the same, also after a takeover. Pure.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from everturn.core.urls import TypedSearch
from everturn.timeline.blocks import (
    ApprovalOutcomeBody,
    ApprovalRequestBody,
    AttachmentBody,
    AttachmentTextBody,
    Block,
    BlockType,
    EventBody,
    PromptBody,
    SignalBody,
    ToolResultBody,
)

ADDRESSES = "addresses"
"""Key in the `data` of a tool's result for the canonical addresses that the tool found."""
READ_BLOCKS = (
    BlockType.USER_PROMPT,
    BlockType.USER_FOLLOWUP,
    BlockType.USER_STEER,
    BlockType.EXTERNAL_EVENT,
    BlockType.ATTACHMENT_META,
    BlockType.ATTACHMENT_TEXT,
    BlockType.TOOL_RESULT,
    BlockType.APPROVAL_REQUEST,
    BlockType.APPROVAL_OUTCOME,
)
"""Block types that these folds read."""


@dataclass(frozen=True, slots=True)
class OutsideFacts:
    """What some blocks say about the outside world. `listed` are the canonical addresses that a search found, that
    fetched pages have or link to, or that the person approved; `typed` are the person's texts, oldest first."""

    listed: frozenset[str] = frozenset()
    typed: tuple[str, ...] = field(default=(), repr=False)
    has_untrusted_text: bool = False


def read_outside_facts(blocks: Sequence[Block]) -> OutsideFacts:
    """Files and events list no addresses: a person who attaches a file has not chosen the addresses in it."""
    listed: set[str] = set()
    typed: list[str] = []
    asked: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        match block.body:
            case PromptBody(text=text) | SignalBody(text=text):
                typed.append(text)
            case ToolResultBody(data=dict() as data):
                listed.update(_read_addresses(data))
            case ApprovalRequestBody(approval_id=approval_id, addresses=approvable):
                asked[approval_id] = approvable
            case ApprovalOutcomeBody() as outcome:
                typed.append(outcome.reason if outcome.signal_id else "")
                if outcome.state == "approved":
                    listed.update(asked.get(outcome.approval_id, ()))
            case _:
                """Names no address that counts."""
    return OutsideFacts(frozenset(listed), tuple(typed), has_untrusted_text(blocks))


def find_seen_urls(facts: OutsideFacts, addresses: Collection[str]) -> frozenset[str]:
    """Those of these canonical addresses that can be requested without approval: listed ones, and those that the person
    typed. Texts beyond the work limit of a search don't count, the oldest first."""
    wanted = frozenset(addresses)
    seen = wanted & facts.listed
    search = TypedSearch(wanted - seen)
    for text in reversed(facts.typed):
        search.read(text)
    return seen | search.found


def has_untrusted_text(blocks: Iterable[Block]) -> bool:
    """Whether the conversation contains anything that someone other than the person and the model could have
    written."""
    return any(
        isinstance(block.body, AttachmentBody | AttachmentTextBody | EventBody)
        or (isinstance(block.body, SignalBody) and bool(block.body.attachments))
        or (isinstance(block.body, ToolResultBody) and block.body.untrusted)
        for block in blocks
    )


def build_address_data(addresses: Sequence[str]) -> dict[str, Any]:
    """The `data` of a result whose tool found these canonical addresses."""
    return {ADDRESSES: list(dict.fromkeys(addresses))} if addresses else {}


def _read_addresses(data: dict[str, Any]) -> list[str]:
    """Another version can have written something else here."""
    listed = data.get(ADDRESSES)
    return [each for each in cast("list[object]", listed) if isinstance(each, str)] if isinstance(listed, list) else []
