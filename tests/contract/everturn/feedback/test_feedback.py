"""Ratings of turns: one of the user, a bounded number by machines."""

import asyncio
from dataclasses import replace
from typing import Literal

import pytest

from everturn.core.errors import Conflict, NotFound
from everturn.feedback.model import MAX_MACHINE_JUDGEMENTS, Feedback, Reaction
from everturn.feedback.postgres import PostgresFeedback
from everturn.timeline.blocks import FeedbackBody
from everturn.turns.model import Claim
from everturn_testing.core import BEGINNING
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN, Harness, commit, write


@pytest.fixture
def book(roles: Roles) -> PostgresFeedback:
    return PostgresFeedback(roles.ingress)


@pytest.fixture
async def claim(postgres_harness: Harness) -> Claim:
    return await postgres_harness.start_turn()


def judge(claim: Claim, reaction: Reaction | None, text: str = "") -> Feedback:
    assert claim.turn_id is not None
    return Feedback(claim.turn_id, "user", reaction, text, BEGINNING)


async def fresh(harness: Harness, claim: Claim) -> tuple[Feedback, ...]:
    assert claim.turn_id is not None
    return (await harness.timelines.load_start(ANN, claim.lease.conversation_id, claim.turn_id)).feedback


async def test_a_users_rating_replaces_the_previous_one(
    book: PostgresFeedback, claim: Claim, postgres_harness: Harness
) -> None:
    await book.save(ANN, claim.lease.conversation_id, judge(claim, Reaction.OK))
    await book.save(ANN, claim.lease.conversation_id, judge(claim, Reaction.NOT_OK, "Wrong."))

    assert await fresh(postgres_harness, claim) == (judge(claim, Reaction.NOT_OK, "Wrong."),)


async def test_ratings_are_stored_on_reused_connections(
    book: PostgresFeedback, claim: Claim, postgres_harness: Harness
) -> None:
    for n in range(12):
        await book.save(ANN, claim.lease.conversation_id, judge(claim, Reaction.OK, str(n)))

    assert await fresh(postgres_harness, claim) == (judge(claim, Reaction.OK, "11"),)


async def test_a_judgement_of_a_workflow_is_stored_whatever_its_text(claim: Claim, postgres_harness: Harness) -> None:
    given = replace(judge(claim, Reaction.OK, "a\0b"), origin="machine")
    await postgres_harness.timelines.commit(claim.lease, replace(commit(claim, write(claim)), feedback=(given,)))

    assert await fresh(postgres_harness, claim) == (replace(given, text="a\ufffdb"),)


_ERASE = """
SELECT (erase_conversation($1)).stores FROM set_config('app.tenant', $2, true) AS tenant,
       set_config('app.project', $3, true) AS project, set_config('app.user_id', $4, true) AS person
"""
_WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"


@pytest.mark.parametrize("origin", ["user", "machine"])
async def test_a_rating_during_the_erasure_finds_no_turn(
    book: PostgresFeedback, claim: Claim, roles: Roles, origin: Literal["user", "machine"]
) -> None:
    erasing = roles.superuser.transaction()
    await erasing.start()
    await roles.superuser.execute(_ERASE, claim.lease.conversation_id, *ANN.owner)

    given = replace(judge(claim, Reaction.OK), origin=origin)
    saving = asyncio.create_task(book.save(ANN, claim.lease.conversation_id, given))
    try:
        async with asyncio.timeout(60):
            while not await roles.superuser.fetchval(_WAITS) and not saving.done():
                pass
    finally:
        await erasing.commit()

    with pytest.raises(NotFound):
        await saving


async def test_an_empty_judgement_clears_the_one_before(
    book: PostgresFeedback, claim: Claim, postgres_harness: Harness
) -> None:
    await book.save(ANN, claim.lease.conversation_id, judge(claim, Reaction.OK))

    await book.save(ANN, claim.lease.conversation_id, judge(claim, None))

    assert await fresh(postgres_harness, claim) == ()


async def test_ratings_by_machines_are_bounded(book: PostgresFeedback, claim: Claim) -> None:
    machine = replace(judge(claim, Reaction.OK), origin="machine", confidence=0.5)
    for _ in range(MAX_MACHINE_JUDGEMENTS):
        await book.save(ANN, claim.lease.conversation_id, machine)

    with pytest.raises(Conflict):
        await book.save(ANN, claim.lease.conversation_id, machine)
    await book.save(ANN, claim.lease.conversation_id, judge(claim, Reaction.OK))


async def test_ratings_by_machines_add_up(book: PostgresFeedback, claim: Claim, postgres_harness: Harness) -> None:
    machine = replace(judge(claim, Reaction.OK), origin="machine", confidence=0.5)

    await book.save(ANN, claim.lease.conversation_id, machine)
    await book.save(ANN, claim.lease.conversation_id, machine)

    assert await fresh(postgres_harness, claim) == (machine, machine)


async def test_only_a_changed_judgement_is_fresh_again(
    book: PostgresFeedback, claim: Claim, postgres_harness: Harness
) -> None:
    conversation_id = claim.lease.conversation_id
    await book.save(ANN, conversation_id, judge(claim, Reaction.OK))
    assert claim.turn_id is not None
    shown = FeedbackBody(turn_id=claim.turn_id, origin="user", reaction="ok", text="")
    await postgres_harness.timelines.commit(claim.lease, commit(claim, write(claim, shown)))

    await book.save(ANN, conversation_id, judge(claim, Reaction.OK))
    assert await fresh(postgres_harness, claim) == ()
    await book.save(ANN, conversation_id, judge(claim, Reaction.NOT_OK))

    assert await fresh(postgres_harness, claim) == (judge(claim, Reaction.NOT_OK),)


async def test_a_turn_of_another_conversation_is_not_found(
    book: PostgresFeedback, claim: Claim, postgres_harness: Harness
) -> None:
    other = await postgres_harness.say()

    with pytest.raises(NotFound):
        await book.save(ANN, other.conversation_id, judge(claim, Reaction.OK))
