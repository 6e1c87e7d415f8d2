"""Identifiers: a prefix and a UUIDv7 (RFC 9562) in text form, so that they sort by creation time and contain no dot."""

import os
import re
import uuid
from collections.abc import Callable
from typing import NewType, Protocol

ConversationId = NewType("ConversationId", str)
TurnId = NewType("TurnId", str)
CallId = NewType("CallId", str)
ArtifactId = NewType("ArtifactId", str)
SignalId = NewType("SignalId", str)
PlanId = NewType("PlanId", str)
ApprovalId = NewType("ApprovalId", str)
CollectionId = NewType("CollectionId", str)

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_ID = re.compile(rf"(conv|coll|turn|call|art|sig|plan|exec|appr)_{_UUID}", re.ASCII)


def make_id(prefix: str, unix_ms: int, entropy: bytes) -> str:
    """Build `<prefix>_<uuidv7>` from a time in milliseconds and 10 random bytes."""
    value = (unix_ms & (1 << 48) - 1) << 80 | int.from_bytes(entropy[:10])
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{prefix}_{uuid.UUID(int=value)}"


def is_id(text: str, prefix: str) -> bool:
    """Whether `text` is an id of ours with that prefix."""
    match = _ID.fullmatch(text)
    return match is not None and match.group(1) == prefix


class Ids(Protocol):
    """A source of ids."""

    def conversation(self) -> ConversationId: ...
    def turn(self) -> TurnId: ...
    def call(self) -> CallId: ...
    def artifact(self) -> ArtifactId: ...
    def signal(self) -> SignalId: ...
    def plan(self) -> PlanId: ...
    def collection(self) -> CollectionId: ...


class RandomIds:
    """Ids from a clock in milliseconds and the system's randomness."""

    def __init__(self, now_ms: Callable[[], int], entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._now_ms = now_ms
        self._entropy = entropy

    def _make(self, prefix: str) -> str:
        return make_id(prefix, self._now_ms(), self._entropy(10))

    def conversation(self) -> ConversationId:
        return ConversationId(self._make("conv"))

    def turn(self) -> TurnId:
        return TurnId(self._make("turn"))

    def call(self) -> CallId:
        return CallId(self._make("call"))

    def artifact(self) -> ArtifactId:
        return ArtifactId(self._make("art"))

    def signal(self) -> SignalId:
        return SignalId(self._make("sig"))

    def plan(self) -> PlanId:
        return PlanId(self._make("plan"))

    def collection(self) -> CollectionId:
        return CollectionId(self._make("coll"))
