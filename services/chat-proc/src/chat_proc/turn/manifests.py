"""The manifests of a turn's requests: the origin, form, length and caching of each part. Saved concurrently with the
turn.

A manifest contains only the text that is in no block: the tail. The system text and the declarations of the tools are
stored apart, and only if no earlier turn of the conversation, as far as this worker remembers, has stored the same.
"""

import asyncio
import hashlib
import json
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal
from weakref import WeakKeyDictionary

import structlog

from chat_proc.timeline.arrangement import ItemPart, ShownItem, WrittenPart
from chat_proc.timeline.view import RenderedItem
from everturn.core.errors import EverturnError
from everturn.core.ids import ConversationId, TurnId
from everturn.core.loops import guarded
from everturn.core.metrics import EXCHANGES_LOST, MANIFESTS_LOST
from everturn.core.threads import call_sized
from everturn.files.model import exchange_key, manifest_key, preamble_key
from everturn.files.objects import Objects
from everturn.models.port import (
    MediaPart,
    ModelRequest,
    Part,
    PromptMessage,
    TextPart,
    ToolCallPart,
    ToolDeclaration,
    ToolResultPart,
)
from everturn.models.tokens import CharsPerToken, estimate_part
from everturn.timeline.blocks import Block
from everturn.timeline.forms import WRITTEN, hash_text
from everturn.timeline.manifests import (
    ManifestHead,
    ManifestPart,
    PartDescription,
    Preamble,
    encode_tools,
)

_log = structlog.get_logger(__name__)

MAX_WAITING = 12
"""Manifests that wait to be saved: four for each of the three steps that a plan can run at the same time."""
MAX_WAITING_EXCHANGES = 32
MAX_EXCHANGE_BYTES = 64 * 1024 * 1024
"""Of the records of model calls of coding agents that wait to be saved, before compression."""
SAVE_S = 2.0
"""Time limit for saving one manifest, or one record of a model call."""
CLOSE_S = 4.0
"""Time limit for saving those that wait at the end of a turn: its conversation waits for them."""

PREAMBLE_ROUND = 0
"""Names the preamble in logs, where a manifest has its round."""
MAX_PREAMBLES = 4_000
"""Stored preambles that are remembered: those of the conversations that a worker serves in minutes. A turn can have one
for its rounds, one for its plan, one for the judgements of its results, and one for its synthesis."""
SEGMENT_BYTES = 250
"""About the JSON of a segment without its text, which decides where a manifest is built."""

Build = Callable[[], bytes]
_Origin = Literal["tools", "system", "block", "media", "tail", "call"]


@dataclass(frozen=True, slots=True)
class StoredPreamble:
    """A preamble by its hash, and the turn that stored it. A turn can store several: its codec can change, and another
    worker can continue it."""

    turn_id: TurnId
    sha256: str


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request as sent. `items` are what it shows of its timeline, in the order of its parts; `preamble` says where
    the system text and the tools are stored."""

    request: ModelRequest
    items: tuple[ShownItem, ...]
    turn_id: str
    round: int
    model: str
    sent_at: str
    ratio: CharsPerToken
    preamble: StoredPreamble

    @property
    def size(self) -> int:
        """About the bytes of the manifest."""
        return SEGMENT_BYTES * sum(len(message.parts) for message in self.request.messages)


class ManifestBuilder:
    """Builds the manifests of a worker. Each request repeats most of the previous one: each item is described and
    encoded once, and that is reused while it is in memory."""

    def __init__(self) -> None:
        self._described: WeakKeyDictionary[RenderedItem, tuple[str, ...]] = WeakKeyDictionary()
        """Used from several threads, by single operations only."""

    def build(self, record: RequestRecord) -> bytes:
        """Build JSON, equal for equal requests. Tokens are estimates by the ratio known at that time."""
        declared = encode_tools(record.request.tools)
        tool_tokens = record.ratio.tokens_for(len(declared))
        sent = [(message, part) for message in record.request.messages for part in message.parts]
        parts = [part for _, part in sent]
        tokens = [estimate_part(part, record.ratio) for part in parts]
        segments = [
            f'{described},"tokens":{count},{_describe_place(message, part)}}}'
            for described, count, (message, part) in zip(self._describe(record, parts), tokens, sent, strict=True)
        ]
        if declared:
            segments.insert(0, f'{_describe_text(declared, "tools")},"tokens":{tool_tokens},"cache_point":false}}')
        head = ManifestHead(
            version=1,
            turn_id=record.turn_id,
            round=record.round,
            model=record.model,
            sent_at=record.sent_at,
            max_output_tokens=record.request.max_output_tokens,
            tokens=tool_tokens + sum(tokens),
            system_turn=record.preamble.turn_id,
            system_sha256=record.preamble.sha256,
        )
        return f'{_open_json(head)},"segments":[{",".join(segments)}]}}'.encode()

    def _describe(self, record: RequestRecord, parts: Sequence[Part]) -> list[str]:
        """The encoded description of each part of the request."""
        system = [message for message in record.request.messages if message.role == "system"]
        described = [each for message in system for each in _describe_system(message)]
        for shown in record.items:
            match shown:
                case ItemPart(item, index):
                    described.append(self._describe_item(item)[index])
                case WrittenPart(item, program):
                    described.append(_describe_written(parts[len(described)], item, program))
                case _:
                    described += self._describe_item(shown)
        return [*described, *_describe_all(parts[len(described) :], "tail")]

    def _describe_item(self, item: RenderedItem) -> tuple[str, ...]:
        """The descriptions of all parts of an item."""
        if (described := self._described.get(item)) is None:
            described = self._described[item] = _describe_all(item.parts, "block", item)
        return described


@lru_cache(maxsize=64)
def _describe_system(message: PromptMessage) -> tuple[str, ...]:
    """Only the first part is in a preamble. A worker has few system texts for each kit, so far fewer than are
    remembered."""
    return *_describe_all(message.parts[:1], "system"), *_describe_all(message.parts[1:], "tail")


def build_preamble(system_prompt: str, tools: Sequence[ToolDeclaration]) -> bytes:
    """JSON of the common beginning of all requests of a turn."""
    return Preamble(system=system_prompt, tools=encode_tools(tools)).model_dump_json().encode()


def _describe_place(message: PromptMessage, part: Part) -> str:
    """The JSON of what a part is in this request: its cache point, its message, and the call."""
    match part:
        case TextPart(cache_point=is_point):
            call = ""
        case MediaPart():
            is_point, call = False, ""
        case ToolCallPart(call_id=call_id, name=name):
            is_point, call = False, f',"call_id":{json.dumps(call_id)},"tool":{json.dumps(name)}'
        case ToolResultPart(call_id=call_id, cache_point=is_point):
            call = f',"call_id":{json.dumps(call_id)}'
    return f'"cache_point":{"true" if is_point else "false"},"role":"{message.role}"{call}'


def _describe_all(parts: Sequence[Part], origin: _Origin, rendered: RenderedItem | None = None) -> tuple[str, ...]:
    block, form = (rendered.item.block, rendered.item.form.value) if rendered is not None else (None, "")
    return tuple(_describe(part, "media" if isinstance(part, MediaPart) else origin, block, form) for part in parts)


def _describe_written(part: Part, item: RenderedItem, program: RenderedItem | None) -> str:
    described = _describe(part, "call" if isinstance(part, ToolCallPart) else "block", item.item.block, WRITTEN)
    return described if program is None else f'{described},"code_seq":{program.item.block.seq}'


def _describe(part: Part, origin: _Origin, block: Block | None, form: str) -> str:
    """The JSON of what is the same in each request, without its closing brace."""
    match part:
        case TextPart(text=text) | ToolResultPart(text=text) | ToolCallPart(arguments=text):
            return _describe_text(text, origin, block, form)
        case MediaPart(data=data):
            return _describe_text("", origin, block, form, sha256=data.sha256)


def _describe_text(
    text: str, origin: _Origin, block: Block | None = None, form: str = "", *, sha256: str | None = None
) -> str:
    described = PartDescription(
        origin=origin,
        ref=block.ref if block else "",
        seq=block.seq if block else 0,
        form=form,
        chars=len(text),
        sha256=sha256 or hash_text(text),
        text=text.encode(errors="replace").decode() if origin == "tail" else None,
    )
    return _open_json(described)


def _open_json(part: ManifestPart) -> str:
    return part.model_dump_json(exclude_none=True)[:-1]


class StoredPreambles:
    """Which turn of a conversation stored a preamble, by its SHA-256. Shared by a worker's turns."""

    def __init__(self) -> None:
        self._stored: OrderedDict[tuple[ConversationId, str], TurnId] = OrderedDict()

    def try_find(self, conversation_id: ConversationId, sha256: str) -> TurnId | None:
        """The turn that stored exactly this preamble."""
        turn_id = self._stored.get((conversation_id, sha256))
        if turn_id is not None:
            self._stored.move_to_end((conversation_id, sha256))
        return turn_id

    def note(self, conversation_id: ConversationId, sha256: str, turn_id: TurnId) -> None:
        """Remember a preamble that has been saved."""
        self._stored[conversation_id, sha256] = turn_id
        self._stored.move_to_end((conversation_id, sha256))
        while len(self._stored) > MAX_PREAMBLES:
            self._stored.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Item:
    """An object to save. Building it takes time in proportion to `size`. `preamble` is the SHA-256 of a preamble;
    `is_exchange` marks the record of a model call, whose number is the `round_number`."""

    key: str
    round_number: int
    size: int
    build: Build
    preamble: str | None = None
    is_exchange: bool = False


class ManifestWriter:
    """The tasks of a turn call `keep` and `keep_preamble`; the turn's runner owns `run`, which ends after `close`."""

    def __init__(
        self,
        objects: Objects,
        *,
        conversation_id: ConversationId,
        turn_id: TurnId,
        preambles: StoredPreambles,
        builder: ManifestBuilder,
    ) -> None:
        self._objects = objects
        self._preambles = preambles
        self._builder = builder
        self._conversation_id = conversation_id
        self._turn_id = turn_id
        self._waiting: deque[_Item] = deque()
        self._bell = asyncio.Event()
        self._closed = False
        self._save_until_s = math.inf
        """The time of the event loop after which nothing more is saved."""
        self._kept: list[tuple[str, tuple[ToolDeclaration, ...], StoredPreamble]] = []
        """The preambles of the turn: one for each codec of its rounds and each choice of tools for a step, and those of
        the calls that plan, judge and write the answer."""

    def keep(self, record: RequestRecord) -> None:
        """Queue the manifest of a request for saving."""
        if sum(item.preamble is None and not item.is_exchange for item in self._waiting) >= MAX_WAITING:
            self._count_lost(record.round, "too many wait")
            return
        key = manifest_key(self._conversation_id, self._turn_id, record.round)
        self._add(_Item(key, record.round, record.size, partial(self._builder.build, record)))

    def keep_exchange(self, run: str, number: int, size: int, build: Build) -> None:
        """Queue the record of a model call that a coding agent made in this run. `size` are its bytes before `build`
        compresses them."""
        waiting = [item.size for item in self._waiting if item.is_exchange]
        if len(waiting) >= MAX_WAITING_EXCHANGES or sum(waiting) + size > MAX_EXCHANGE_BYTES:
            self._count_lost_exchange(number, "too many wait")
            return
        key = exchange_key(self._conversation_id, self._turn_id, run, number)
        self._add(_Item(key, number, size, build, is_exchange=True))

    def keep_preamble(self, system_prompt: str, tools: tuple[ToolDeclaration, ...] = ()) -> StoredPreamble:
        """Where this system text and these tools are stored: by an earlier turn, or by this one, which then queues them
        for saving."""
        for text, declared, stored in self._kept:
            if text == system_prompt and declared == tools:
                return stored
        stored = self._store_preamble(build_preamble(system_prompt, tools))
        self._kept.append((system_prompt, tools, stored))
        return stored

    def _store_preamble(self, preamble: bytes) -> StoredPreamble:
        sha256 = hashlib.sha256(preamble).hexdigest()
        if (earlier := self._preambles.try_find(self._conversation_id, sha256)) is not None:
            return StoredPreamble(earlier, sha256)
        key = preamble_key(self._conversation_id, self._turn_id, sha256)
        self._add(_Item(key, PREAMBLE_ROUND, len(preamble), lambda: preamble, preamble=sha256))
        return StoredPreamble(self._turn_id, sha256)

    def close(self) -> None:
        """Accept no more manifests: `run` ends once the queued ones are saved, or after CLOSE_S."""
        self._closed = True
        self._save_until_s = asyncio.get_running_loop().time() + CLOSE_S
        self._bell.set()

    def abandon(self) -> None:
        """Save no more, because the lease is lost. A saved manifest may by now be another worker's."""
        self._waiting.clear()

    async def run(self) -> None:
        while self._waiting or not self._closed:
            await self._bell.wait()
            self._bell.clear()
            while self._waiting:
                await self._save(self._waiting.popleft())

    def _add(self, item: _Item) -> None:
        self._waiting.append(item)
        self._bell.set()

    async def _save(self, item: _Item) -> None:
        # An error that left this task would end the turn too.
        with guarded("manifests", turn_id=self._turn_id, round=item.round_number) as guard:
            try:
                await self._store(item)
                return
            except (EverturnError, TimeoutError) as error:
                self._count_lost_item(item, repr(error))
        if guard.error is not None:
            self._count_lost_item(item, repr(guard.error))
        # The next request that begins with this preamble stores it.
        self._kept = [kept for kept in self._kept if kept[2].sha256 != item.preamble]

    async def _store(self, item: _Item) -> None:
        left_s = self._save_until_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise TimeoutError("The turn has ended.")
        async with asyncio.timeout(min(SAVE_S, left_s)):
            await self._objects.save(item.key, await call_sized(item.size, item.build))
        if item.preamble is not None:
            self._preambles.note(self._conversation_id, item.preamble, self._turn_id)

    def _count_lost_item(self, item: _Item, why: str) -> None:
        count = self._count_lost_exchange if item.is_exchange else self._count_lost
        count(item.round_number, why)

    def _count_lost_exchange(self, number: int, why: str) -> None:
        EXCHANGES_LOST.inc()
        _log.warning("Could not save the record of a model call", turn_id=self._turn_id, number=number, why=why)

    def _count_lost(self, round_number: int, why: str) -> None:
        MANIFESTS_LOST.inc()
        _log.warning("Could not save the manifest of the request", turn_id=self._turn_id, round=round_number, why=why)
