"""Manifests are kept beside the turn: never waited for while it runs, and never its failure."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY, Counter
from turn_harness.harness import until

from chat_proc.turn import manifests
from chat_proc.turn.manifests import (
    MAX_EXCHANGE_BYTES,
    MAX_PREAMBLES,
    MAX_WAITING,
    MAX_WAITING_EXCHANGES,
    ManifestBuilder,
    ManifestWriter,
    RequestRecord,
    StoredPreamble,
    StoredPreambles,
)
from everturn.core.ids import ConversationId, TurnId
from everturn.core.metrics import EXCHANGES_LOST, MANIFESTS_LOST
from everturn.files.model import exchange_key, preamble_key
from everturn.files.objects import Objects
from everturn.models.port import ModelRequest, PromptMessage, TextPart, ToolDeclaration
from everturn.models.tokens import CharsPerToken
from everturn.timeline.manifests import Manifest, Preamble, encode_tools
from everturn_testing.files.objects import MemoryObjects

CONVERSATION, TURN, LATER = ConversationId("conv_1"), TurnId("turn_1"), TurnId("turn_2")


class SlowObjects(MemoryObjects):
    """Saves nothing before `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()

    async def save(self, key: str, data: bytes) -> None:
        self.asked.set()
        await self.go_on.wait()
        await super().save(key, data)


def open_writer(objects: Objects, turn: TurnId = TURN, preambles: StoredPreambles | None = None) -> ManifestWriter:
    return ManifestWriter(
        objects,
        conversation_id=CONVERSATION,
        turn_id=turn,
        preambles=preambles or StoredPreambles(),
        builder=ManifestBuilder(),
    )


def record(number: int, text: str = "x", *, items: tuple[Any, ...] = ()) -> RequestRecord:
    request = ModelRequest((PromptMessage("user", (TextPart(text),)),), 100)
    return RequestRecord(
        request=request, items=items, turn_id=TURN, round=number, model="m",
        sent_at="2026-03-01T12:00:00.000Z", ratio=CharsPerToken(2.0), preamble=StoredPreamble(TURN, "0" * 64),
    )  # fmt: skip


def texts(objects: MemoryObjects) -> dict[str, str | None]:
    """The tail of each stored manifest, by the end of its key."""
    stored = {key.rpartition("/")[2]: Manifest.model_validate_json(data) for key, data in objects.stored.items()}
    return {key: manifest.segments[0].text for key, manifest in stored.items()}


async def keep_preamble(
    objects: Objects,
    preambles: StoredPreambles,
    text: str,
    turn: TurnId,
    *,
    tools: tuple[ToolDeclaration, ...] = (),
) -> TurnId:
    writer = open_writer(objects, turn, preambles)
    stored_by = writer.keep_preamble(text, tools)
    assert writer.keep_preamble(text, tools) == stored_by
    writer.close()
    await writer.run()
    return stored_by.turn_id


def count_lost(counter: Counter = MANIFESTS_LOST) -> float:
    return next(sample.value for metric in counter.collect() for sample in metric.samples)


def count_unexpected() -> float:
    return REGISTRY.get_sample_value("everturn_loop_errors_total", {"loop": "manifests"}) or 0.0


async def test_what_is_kept_is_saved_under_its_turn_and_round() -> None:
    objects = MemoryObjects()
    writer = open_writer(objects)
    running = asyncio.create_task(writer.run())

    writer.keep(record(1, "one"))
    writer.keep(record(2, "two"))
    writer.close()
    await running

    assert texts(objects) == {"turn_1.1": "one", "turn_1.2": "two"}


async def test_a_system_text_is_stored_once_for_the_turns_of_a_conversation() -> None:
    objects, preambles = MemoryObjects(), StoredPreambles()

    first = await keep_preamble(objects, preambles, "Be brief.", TURN)
    second = await keep_preamble(objects, preambles, "Be brief.", LATER)

    assert (first, second) == (TURN, TURN)
    ((key, data),) = objects.stored.items()
    assert key.startswith("conv_1/manifests/turn_1.0.")
    assert Preamble.model_validate_json(data).system == "Be brief."


async def test_a_changed_system_text_is_stored_again() -> None:
    objects, preambles = MemoryObjects(), StoredPreambles()

    await keep_preamble(objects, preambles, "Be brief.", TURN)

    assert await keep_preamble(objects, preambles, "Be exact.", LATER) == LATER
    assert len(objects.stored) == 2


async def test_an_equal_preamble_is_queued_once() -> None:
    objects = MemoryObjects()
    writer = open_writer(objects)
    tools = [(ToolDeclaration("read", "Reads.", {"type": "object"}),) for _ in range(3)]

    kept = {writer.keep_preamble("".join(["Be ", "brief."]), each) for each in tools}
    writer.close()
    await writer.run()

    assert len(kept) == len(objects.stored) == 1


async def test_a_system_text_is_not_stored_again_after_another_one() -> None:
    objects, preambles = MemoryObjects(), StoredPreambles()

    for text in ("Be brief.", "Write the answer."):
        await keep_preamble(objects, preambles, text, TURN)

    assert await keep_preamble(objects, preambles, "Be brief.", LATER) == TURN


async def test_a_preamble_with_other_tools_is_stored_again() -> None:
    objects, preambles = MemoryObjects(), StoredPreambles()
    tools = (ToolDeclaration("read", "Reads.", {"type": "object"}),)

    await keep_preamble(objects, preambles, "Be brief.", TURN)
    stored_by = await keep_preamble(objects, preambles, "Be brief.", LATER, tools=tools)

    assert stored_by == LATER
    (data,) = (data for key, data in objects.stored.items() if key.startswith("conv_1/manifests/turn_2.0."))
    preamble = Preamble.model_validate_json(data)
    assert (preamble.system, preamble.tools) == ("Be brief.", encode_tools(tools))


async def test_a_system_text_that_was_not_saved_is_not_referred_to() -> None:
    objects, preambles = MemoryObjects(), StoredPreambles()
    objects.down = True
    await keep_preamble(objects, preambles, "Be brief.", TURN)
    objects.down = False

    assert await keep_preamble(objects, preambles, "Be brief.", LATER) == LATER


async def test_each_preamble_of_a_turn_is_stored_under_its_hash() -> None:
    """The codec of a turn can change, and another worker can continue it with another text."""
    objects = MemoryObjects()
    writer, successor = open_writer(objects), open_writer(objects)
    tools = (ToolDeclaration("read", "Reads.", {"type": "object"}),)

    kept = [writer.keep_preamble("Be brief."), writer.keep_preamble("Be brief.", tools)]
    kept.append(successor.keep_preamble("Be exact."))
    for each in (writer, successor):
        each.close()
        await each.run()

    stored = [Preamble.model_validate_json(objects.stored[preamble_key("conv_1", TURN, each.sha256)]) for each in kept]
    assert [(each.system, each.tools) for each in stored] == [
        ("Be brief.", ""), ("Be brief.", encode_tools(tools)), ("Be exact.", "")
    ]  # fmt: skip


def test_only_the_conversations_served_last_are_remembered() -> None:
    preambles = StoredPreambles()
    for n in range(MAX_PREAMBLES + 1):
        assert n == 0 or preambles.try_find(ConversationId("conv_0"), "Be brief.") == TURN
        preambles.note(ConversationId(f"conv_{n}"), "Be brief.", TURN)

    assert preambles.try_find(ConversationId("conv_1"), "Be brief.") is None
    assert preambles.try_find(ConversationId("conv_0"), "Be brief.") == TURN


async def test_a_store_that_is_down_costs_a_count_and_no_more() -> None:
    objects = MemoryObjects()
    objects.down = True
    writer = open_writer(objects)
    before, bugs = count_lost(), count_unexpected()

    writer.keep(record(1, "one"))
    writer.close()
    await writer.run()

    assert count_lost() == before + 1
    assert count_unexpected() == bugs


async def test_a_failed_manifest_is_counted_and_the_next_is_saved() -> None:
    objects = MemoryObjects()
    writer = open_writer(objects)
    before, bugs = count_lost(), count_unexpected()

    writer.keep(record(1, items=("not an item",)))
    writer.keep(record(2, "two"))
    writer.close()
    await writer.run()

    assert count_lost() == before + 1
    assert count_unexpected() == bugs + 1
    assert list(objects.stored) == ["conv_1/manifests/turn_1.2"]


async def test_records_of_model_calls_are_saved_beside_manifests_and_bounded() -> None:
    objects = SlowObjects()
    writer = open_writer(objects)
    before, lost = count_lost(EXCHANGES_LOST), count_lost()

    for number in range(1, MAX_WAITING_EXCHANGES + 3):
        writer.keep_exchange("exec_1", number, 10, b"record".lower)
    writer.keep(record(1, "one"))
    objects.go_on.set()
    writer.close()
    await writer.run()

    assert objects.stored[exchange_key(CONVERSATION, TURN, "exec_1", MAX_WAITING_EXCHANGES)] == b"record"
    assert "conv_1/manifests/turn_1.1" in objects.stored
    assert (count_lost(EXCHANGES_LOST), count_lost()) == (before + 2, lost)

    objects.down = True
    writer = open_writer(objects)
    writer.keep_exchange("exec_1", 1, MAX_EXCHANGE_BYTES, bytes)
    writer.keep_exchange("exec_1", 2, 1, bytes)
    writer.close()
    await writer.run()

    assert (count_lost(EXCHANGES_LOST), count_lost()) == (before + 4, lost)


async def test_a_slow_store_is_not_waited_for_and_the_queue_is_bounded() -> None:
    objects = SlowObjects()
    writer = open_writer(objects)
    before = count_lost()

    for number in range(MAX_WAITING + 3):
        writer.keep(record(number))

    assert count_lost() == before + 3
    objects.go_on.set()
    writer.close()
    await writer.run()
    assert len(objects.stored) == MAX_WAITING


async def test_the_end_of_a_turn_waits_for_a_slow_store_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "CLOSE_S", 0.05)
    writer = open_writer(SlowObjects())
    before = count_lost()
    for number in range(3):
        writer.keep(record(number))

    writer.close()
    await asyncio.wait_for(writer.run(), manifests.SAVE_S)

    assert count_lost() == before + 3


async def test_a_preamble_is_stored_although_many_manifests_wait() -> None:
    objects = SlowObjects()
    writer = open_writer(objects)
    for number in range(MAX_WAITING):
        writer.keep(record(number))

    stored = writer.keep_preamble("Be brief.")
    objects.go_on.set()
    writer.close()
    await writer.run()

    assert preamble_key("conv_1", TURN, stored.sha256) in objects.stored


async def test_a_preamble_that_could_not_be_stored_is_stored_with_the_next_request() -> None:
    objects = MemoryObjects()
    writer = open_writer(objects)
    running = asyncio.create_task(writer.run())
    objects.down = True
    before = count_lost()
    stored = writer.keep_preamble("Be brief.")
    await until(lambda: count_lost() > before)

    objects.down = False
    assert writer.keep_preamble("Be brief.") == stored
    writer.close()
    await running

    assert preamble_key("conv_1", TURN, stored.sha256) in objects.stored


async def test_after_a_lost_lease_nothing_more_is_saved() -> None:
    objects = SlowObjects()
    writer = open_writer(objects)
    running = asyncio.create_task(writer.run())
    writer.keep(record(1, "on its way"))
    writer.keep(record(2, "waiting"))
    await asyncio.wait_for(objects.asked.wait(), 5)

    writer.abandon()
    objects.go_on.set()
    writer.close()
    await running

    assert list(objects.stored) == ["conv_1/manifests/turn_1.1"]
