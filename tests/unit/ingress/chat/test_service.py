"""Accepting messages: concurrent requests, notifications that fail, objects of refused messages."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from starlette.datastructures import Headers
from uploads.checks import AllSound

from everturn.bundles.registry import BUILT_IN, BundleListing
from everturn.core.errors import EverturnError, NotFound, Unavailable
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId, SignalId, TurnId
from everturn.core.work_slots import NoRoom
from everturn.events.stream import Hint, RedisUse
from everturn.queue.model import QueueCaps, QueueDepth, QueueFull
from everturn.timeline.turns import SignalState
from everturn.turns.inbox import IncomingMessage, KeyBusy, KeyReused, Receipt, UnknownBundle, UploadTooLate
from everturn_testing.core import FixedClock, SequentialIds
from everturn_testing.queue.presences import MemoryPresences
from ingress.admission.queue_gate import WorkerPoolWatch, WorkGate
from ingress.attachments.antivirus import NoScan
from ingress.attachments.intake import FileCaps, IncomingFile, Intake
from ingress.bundles import Bundles
from ingress.chat.schemas import MessageIn, Submission
from ingress.chat.service import (
    STORED_AT_ONCE_OF_PERSON,
    WAITING_TO_BE_STORED,
    ChatService,
    parse_turn_id,
)
from ingress.errors import ProblemError
from ingress.metrics import IngressMetrics

ME = Principal("t", "p", "me")
CSV = IncomingFile("a.csv", "text/csv", b"a,b\n")
RECEIPT = Receipt(ConversationId("conv_1"), TurnId("turn_1"), None, None, ring=True, lane=Lane.REGISTERED)
CONVERSATION = "conv_01890a5d-ac96-774b-bcce-b302099a8057"
REPLAY = replace(RECEIPT, ring=False, replayed=True)


class World:
    """The dependencies of the service, in memory; `outcomes` are the results of accepting, in order."""

    def __init__(
        self,
        *outcomes: Receipt | Exception,
        depth: int = 0,
        redis_down: bool = False,
        cap: int = 10,
        store_wait_s: float = 30.0,
    ) -> None:
        self.outcomes = list(outcomes)
        self.storing: list[Principal] = []
        self.may_store = asyncio.Event()
        self.may_store.set()
        self.clock = FixedClock()
        self.kept: Receipt | Exception | None = None
        self.bundles: list[BundleListing] | Exception = [BUILT_IN]
        self.accepted: list[IncomingMessage] = []
        self.store_away = False
        self.sent: list[object] = []
        self.objects: dict[str, bytes] = {}
        self._depth = depth
        self._cap = cap
        self._redis_down = redis_down
        self.store_silent = False
        self.metrics = metrics = IngressMetrics()
        self.use = RedisUse(0, 0)
        world: Any = self
        intake = Intake(
            objects=world,
            antivirus=NoScan(),
            structure=AllSound(),
            caps=FileCaps(1000, 1000, 1000, 3),
            ids=SequentialIds(),
            metrics=metrics,
        )
        self.service = ChatService(
            bundles=Bundles(self.load_listed, monotonic=self.clock.monotonic),
            inbox=world,
            notifications=world,
            gate=self._build_gate(),
            intake=intake,
            ids=SequentialIds(),
            clock=self.clock,
            metrics=metrics,
            event_kinds=frozenset({"form", "alert"}),
            store_wait_s=store_wait_s,
        )

    def _build_gate(self) -> WorkGate:
        world: Any = self
        presences = MemoryPresences(monotonic=self.clock.monotonic)
        return WorkGate(
            doorbells=world,
            queue=world,
            memory=world,
            workers=WorkerPoolWatch(presences, monotonic=self.clock.monotonic),
            caps=QueueCaps(self._cap),
            metrics=self.metrics,
            monotonic=self.clock.monotonic,
            random=lambda: 0.5,
        )

    async def load_now(self) -> datetime:
        return self.clock.now()

    async def load_listed(self) -> tuple[BundleListing, ...]:
        if isinstance(self.bundles, Exception):
            raise self.bundles
        return tuple(self.bundles)

    async def accept_message(self, principal: Principal, message: IncomingMessage, _: object) -> Receipt:
        self.accepted.append(message)
        self.clock.advance(2)
        self.storing.append(principal)
        await self.may_store.wait()
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def try_load_receipt(self, *_: object) -> Receipt | None:
        if isinstance(self.kept, Exception):
            raise self.kept
        return self.kept

    async def probe(self, owner: Principal) -> RedisUse:
        return self.use

    async def load_depth(self, *_: object) -> QueueDepth:
        return QueueDepth(self._depth, 0)

    async def check(self, **_: object) -> None:
        return None

    async def send(self, hint: Hint, *, ring_lane: Lane | None = None) -> Mapping[str, str]:
        if self._redis_down:
            return {"doorbell": "Redis", "hint": "Redis"}
        self.sent.append((hint, ring_lane))
        return {}

    async def save(self, key: str, data: bytes) -> None:
        if self.store_away:
            raise Unavailable("the store")
        self.objects[key] = data

    async def delete(self, keys: tuple[str, ...]) -> int:
        if self.store_silent:
            await asyncio.Event().wait()
        return sum(self.objects.pop(key, None) is not None for key in keys)

    async def accept(self, *files: IncomingFile, conversation: str = "new", bundle_id: str | None = None) -> Receipt:
        submission = Submission(MessageIn(text="hello", bundle_id=bundle_id), files)
        return await self.service.accept_message(ME, conversation, submission, Headers({"idempotency-key": "k"}))


async def test_an_accepted_message_notifies_and_keeps_its_objects() -> None:
    world = World(RECEIPT)

    assert await world.accept(CSV) == RECEIPT

    assert world.sent == [(Hint("status", ConversationId("conv_1")), Lane.REGISTERED)]
    assert list(world.objects.values()) == [CSV.data]


async def test_a_notification_that_fails_after_the_commit_is_no_error() -> None:
    world = World(RECEIPT, redis_down=True)

    assert await world.accept() == RECEIPT

    assert world.metrics.registry.get_sample_value("ingress_notifications_failed_total") == 2


async def test_a_signal_notifies_the_running_turn_and_the_clients() -> None:
    receipt = Receipt(
        ConversationId("conv_1"), TurnId("turn_1"), SignalId("sig_1"), SignalState.ACCEPTED, ring=False, lane=Lane.PAID
    )
    world = World(receipt)

    await world.accept()

    assert world.sent == [(Hint("signal", ConversationId("conv_1"), "sig_1"), None)]


async def test_a_concurrent_request_is_awaited_and_wakes_no_worker_again() -> None:
    replay = Receipt(ConversationId("conv_2"), TurnId("t"), None, None, ring=False, lane=Lane.PAID, replayed=True)
    world = World(KeyBusy(), KeyBusy(), replay)

    assert await world.accept(CSV) == replay

    # The other process may have died before it sent its hint.
    assert world.sent == [(Hint("status", ConversationId("conv_2")), None)]
    assert world.objects == {}


async def test_a_concurrent_request_of_more_than_five_seconds_is_a_conflict() -> None:
    world = World(KeyBusy())

    with pytest.raises(KeyBusy):
        await world.accept()

    assert 5 <= world.clock.monotonic() <= 9


@pytest.mark.parametrize("refusal", [NotFound("x"), UploadTooLate()], ids=str)
async def test_a_message_that_is_not_accepted_leaves_no_object(refusal: EverturnError) -> None:
    world = World(refusal)

    with pytest.raises(type(refusal)):
        await world.accept(CSV)

    assert world.objects == {}
    assert world.sent == []


async def test_a_message_whose_commit_may_have_happened_keeps_its_objects() -> None:
    world = World(Unavailable("Postgres: connection lost"))

    with pytest.raises(Unavailable):
        await world.accept(CSV)

    assert list(world.objects.values()) == [CSV.data]
    assert world.sent == []


async def test_a_full_queue_refuses_before_anything_is_stored() -> None:
    world = World(RECEIPT, depth=10)

    with pytest.raises(ProblemError) as refused:
        await world.accept(CSV)

    assert refused.value.status_code == 503
    assert world.objects == {}
    assert world.outcomes == [RECEIPT]


async def test_a_full_queue_gives_the_answer_again_that_a_request_has_got_before() -> None:
    world = World(NotFound("is not asked"), depth=10)
    world.kept = REPLAY

    assert await world.accept(CSV) == REPLAY

    assert (world.objects, world.sent) == ({}, [])


async def test_an_accepted_request_is_repeated_although_its_file_is_now_refused() -> None:
    world = World(NotFound("is not asked"))
    world.kept = REPLAY

    assert await world.accept(replace(CSV, filename="a.png")) == REPLAY

    assert (world.objects, world.sent) == ({}, [])


async def test_an_accepted_request_is_repeated_while_the_store_is_down() -> None:
    world = World(NotFound("is not asked"))
    world.kept, world.store_away = REPLAY, True

    assert await world.accept(CSV) == REPLAY


async def test_a_key_of_another_request_is_refused_even_if_the_queue_is_full() -> None:
    world = World(RECEIPT, depth=10)
    world.kept = KeyReused()

    with pytest.raises(KeyReused):
        await world.accept()


async def test_a_refusal_stands_if_the_recorded_answer_is_unreadable() -> None:
    world = World(RECEIPT, depth=10)
    world.kept = Unavailable("Postgres")

    with pytest.raises(ProblemError) as refused:
        await world.accept()

    assert refused.value.status_code == 503


async def test_concurrent_equal_requests_need_one_place() -> None:
    world = World(RECEIPT, depth=9)
    world.kept = REPLAY

    answers = await asyncio.gather(*(world.accept() for _ in range(5)))

    assert sorted(answers, key=lambda answer: answer.replayed) == [RECEIPT, *[REPLAY] * 4]


@pytest.mark.parametrize("bundle_id", ["typo", "broken", "gold"])
async def test_a_bundle_that_a_person_cannot_use_is_refused_before_anything_is_stored(bundle_id: str) -> None:
    world = World(RECEIPT)
    gold, broken = BundleListing("gold", "", "", roles=("paid",)), BundleListing("broken", "", "", is_ready=False)
    world.bundles = [BUILT_IN, BundleListing("desk", "", "Desk"), gold, broken]

    with pytest.raises(ProblemError) as refused:
        await world.accept(CSV, bundle_id=bundle_id)

    body = refused.value.build_body()
    assert (body["type"], body["status"]) == ("urn:everturn:problem:unknown-bundle", 422)
    assert body["errors"] == [{"field": "body.bundle_id", "message": "must be one of default, desk"}]
    assert (world.objects, world.accepted) == ({}, [])


async def test_a_conversation_whose_own_bundle_is_closed_gets_the_same_refusal() -> None:
    world = World(UnknownBundle())
    world.bundles = [BUILT_IN, BundleListing("desk", "", "Desk")]

    with pytest.raises(ProblemError) as refused:
        await world.accept(CSV, conversation=CONVERSATION)

    assert refused.value.kind == "unknown-bundle"
    assert refused.value.errors == [{"field": "body.bundle_id", "message": "must be one of default, desk"}]
    assert world.accepted[0].open_bundles == {"default", "desk"}
    assert world.objects == {}


async def test_a_default_bundle_of_some_roles_is_not_open_to_others_without_a_name() -> None:
    world = World(RECEIPT)
    world.bundles = [BundleListing("gold", "", "", roles=("paid",), is_default=True), BundleListing("desk", "", "")]

    assert await world.accept(bundle_id="desk") == RECEIPT
    world.outcomes = [UnknownBundle()]
    for bundle_id in (None, "default", "gold"):
        with pytest.raises(ProblemError) as refused:
            await world.accept(bundle_id=bundle_id)
        assert refused.value.errors[0]["message"] == "must be one of desk"


async def test_only_the_default_bundle_is_accepted_while_the_registry_cannot_be_read() -> None:
    world = World(RECEIPT)
    world.bundles = Unavailable("Postgres")

    assert [await world.accept(), await world.accept(bundle_id="default")] == [RECEIPT, RECEIPT]
    assert [message.open_bundles for message in world.accepted] == [{"default"}, {"default"}]
    with pytest.raises(Unavailable):
        await world.accept(bundle_id="desk")
    world.outcomes = [UnknownBundle()]
    with pytest.raises(Unavailable):
        await world.accept(conversation=CONVERSATION)


async def test_an_accepted_request_is_repeated_although_its_bundle_is_gone() -> None:
    world = World(NotFound("is not asked"))
    world.kept = REPLAY

    assert await world.accept(bundle_id="gone") == REPLAY


def test_a_target_must_be_a_turns_id() -> None:
    refusing: Callable[[str], object] = parse_turn_id

    assert parse_turn_id(None) is None
    with pytest.raises(ProblemError):
        refusing("turn_x")


async def test_a_failed_deletion_does_not_delay_a_certain_answer() -> None:
    accepted, full, unknown = World(REPLAY), World(QueueFull("tenant", "10 turns wait.")), World(NotFound("x"))
    for world in (accepted, full, unknown):
        world.store_silent = True

    async with asyncio.timeout(30):
        assert await accepted.accept(CSV) == REPLAY
        with pytest.raises(ProblemError) as refused:
            await full.accept(CSV)
        with pytest.raises(NotFound):
            await unknown.accept(CSV)

    assert refused.value.status_code == 429


async def test_a_tenant_whose_share_filled_meanwhile_gets_retry_after() -> None:
    world = World(QueueFull("tenant", "10 turns wait."))

    with pytest.raises(ProblemError) as refused:
        await world.accept(CSV)

    assert refused.value.status_code == 429
    assert (refused.value.headers or {})["Retry-After"] == "23"
    assert world.objects == {}


async def test_one_persons_flood_of_messages_leaves_room_for_another_person() -> None:
    world = World(RECEIPT, cap=1000)
    world.may_store.clear()
    submission = Submission(MessageIn(text="hello"), ())

    async def send(person: Principal, key: int) -> Receipt:
        headers = Headers({"idempotency-key": f"k{key}"})
        return await world.service.accept_message(person, "new", submission, headers)

    you = Principal("t", "p", "you")
    flood = [asyncio.create_task(send(ME, key)) for key in range(40)]
    await until(lambda: len(world.storing) == STORED_AT_ONCE_OF_PERSON)
    other = asyncio.create_task(send(you, 0))
    await until(lambda: you in world.storing)

    assert world.storing.count(ME) == STORED_AT_ONCE_OF_PERSON
    world.may_store.set()
    assert {receipt.turn_id for receipt in await asyncio.gather(other, *flood)} == {RECEIPT.turn_id}


async def test_a_message_without_room_to_be_stored_leaves_no_objects() -> None:
    world = World(RECEIPT, cap=1000)
    world.may_store.clear()
    text = Submission(MessageIn(text="hello"), ())
    waiting = [
        asyncio.create_task(world.service.accept_message(ME, "new", text, Headers({"idempotency-key": f"k{key}"})))
        for key in range(STORED_AT_ONCE_OF_PERSON + WAITING_TO_BE_STORED)
    ]
    await until(lambda: len(world.storing) == STORED_AT_ONCE_OF_PERSON)
    for _ in range(20):
        await asyncio.sleep(0)

    with pytest.raises(NoRoom):
        await world.accept(CSV)

    assert world.objects == {}
    world.may_store.set()
    await asyncio.gather(*waiting)


async def test_a_message_does_not_wait_for_all_requests_of_a_hanging_database() -> None:
    world = World(RECEIPT, cap=1000, store_wait_s=0.05)
    world.may_store.clear()
    text = Submission(MessageIn(text="hello"), ())
    hanging = [
        asyncio.create_task(world.service.accept_message(ME, "new", text, Headers({"idempotency-key": f"k{key}"})))
        for key in range(STORED_AT_ONCE_OF_PERSON)
    ]
    await until(lambda: len(world.storing) == STORED_AT_ONCE_OF_PERSON)

    async with asyncio.timeout(10):
        with pytest.raises(NoRoom):
            await world.accept(CSV)

    assert world.objects == {}
    world.may_store.set()
    await asyncio.gather(*hanging)
    assert await world.accept(CSV)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the service under test has no event for it
            await asyncio.sleep(0.001)
