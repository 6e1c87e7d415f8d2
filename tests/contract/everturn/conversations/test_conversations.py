"""Conversations as their owner lists, renames and erases them."""

from dataclasses import replace

import pytest

from everturn.conversations.model import ConversationChanges, ConversationQuery, ConversationState
from everturn.conversations.postgres import PostgresConversations
from everturn.core.errors import Invalid, NotFound, StaleFence
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.feedback.model import Feedback, Reaction
from everturn.turns.inbox import IdempotencyKey
from everturn_testing.core import BEGINNING, SequentialIds
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN, Harness, closing, commit, think


@pytest.fixture
def conversations(roles: Roles) -> PostgresConversations:
    return PostgresConversations(roles.ingress)


@pytest.fixture
def owner(module_ids: SequentialIds) -> Principal:
    """A user of this test only."""
    return replace(ANN, user_id=module_ids.call())


async def create(
    conversations: PostgresConversations, owner: Principal, ids: SequentialIds, title: str
) -> ConversationId:
    return (await conversations.create(owner, ids.conversation(), title=title, bundle_id=None)).id


async def test_a_new_conversation_is_idle_and_can_be_loaded(
    conversations: PostgresConversations, owner: Principal, module_ids: SequentialIds
) -> None:
    created = await conversations.create(owner, module_ids.conversation(), title="Zürich", bundle_id="sales")

    assert await conversations.load(owner, created.id) == created
    assert (created.title, created.state, created.bundle_id, created.archived) == (
        "Zürich",
        ConversationState.IDLE,
        "sales",
        False,
    )


async def test_pages_come_newest_activity_first_and_without_overlap(
    conversations: PostgresConversations, owner: Principal, module_ids: SequentialIds
) -> None:
    created = [await create(conversations, owner, module_ids, str(n)) for n in range(5)]

    seen, cursor = [], None
    while True:
        page = await conversations.load_page(owner, ConversationQuery(limit=2, cursor=cursor))
        seen += [conversation.id for conversation in page.conversations]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert seen == created[::-1]


async def test_the_list_can_be_searched_by_title_literally(
    conversations: PostgresConversations, owner: Principal, module_ids: SequentialIds
) -> None:
    for title in ("100% Sales", "1000 sales", "under_score", r"C:\Sales"):
        await create(conversations, owner, module_ids, title)

    async def found(search: str) -> set[str]:
        page = await conversations.load_page(owner, ConversationQuery(search=search))
        return {conversation.title for conversation in page.conversations}

    assert await found("100%") == {"100% Sales"}
    assert await found("SALES") == {"100% Sales", "1000 sales", r"C:\Sales"}
    assert await found("r_s") == {"under_score"}
    assert await found("C:\\") == {r"C:\Sales"}


async def test_titles_are_those_of_the_conversations_that_are_there(
    conversations: PostgresConversations, owner: Principal, module_ids: SequentialIds
) -> None:
    first, second, gone = [await create(conversations, owner, module_ids, title) for title in ("first", "second", "x")]
    await conversations.erase(owner, gone)

    assert await conversations.load_titles(owner, [first, second, gone]) == {first: "first", second: "second"}
    assert await conversations.load_titles(owner, []) == {}


async def test_archived_ones_are_a_list_of_their_own(
    conversations: PostgresConversations, owner: Principal, module_ids: SequentialIds
) -> None:
    kept, archived = [await create(conversations, owner, module_ids, title) for title in ("kept", "archived")]

    await conversations.save(owner, archived, ConversationChanges(archived=True))

    (one,) = (await conversations.load_page(owner, ConversationQuery())).conversations
    (other,) = (await conversations.load_page(owner, ConversationQuery(archived=True))).conversations
    assert (one.id, other.id, other.title) == (kept, archived, "archived")


async def test_the_list_can_be_narrowed_to_a_state(
    conversations: PostgresConversations, postgres_harness: Harness, owner: Principal, module_ids: SequentialIds
) -> None:
    await create(conversations, owner, module_ids, "idle")
    receipt = await replace(postgres_harness, principal=owner).say()

    page = await conversations.load_page(owner, ConversationQuery(state=ConversationState.QUEUED))

    assert [conversation.id for conversation in page.conversations] == [receipt.conversation_id]


@pytest.mark.parametrize("cursor", ["", "x", "é", "a" * 300, "MjAyNi0wMS0wMSBj", "bm90IGEgZGF0ZSB4"])
async def test_a_malformed_cursor_is_invalid(
    cursor: str, conversations: PostgresConversations, owner: Principal
) -> None:
    with pytest.raises(Invalid):
        await conversations.load_page(owner, ConversationQuery(cursor=cursor))


async def test_saving_nothing_changes_nothing(
    conversations: PostgresConversations, owner: Principal, module_ids: SequentialIds
) -> None:
    created = await create(conversations, owner, module_ids, "same")

    assert (await conversations.save(owner, created, ConversationChanges())).title == "same"
    assert (await conversations.save(owner, created, ConversationChanges(title="new"))).title == "new"
    with pytest.raises(NotFound):
        await conversations.save(owner, module_ids.conversation(), ConversationChanges(title="x"))


async def test_a_title_with_a_null_character_is_invalid(
    conversations: PostgresConversations, owner: Principal, module_ids: SequentialIds
) -> None:
    with pytest.raises(Invalid):
        await create(conversations, owner, module_ids, "a\x00b")


async def test_a_turns_states_show_in_its_conversation(
    conversations: PostgresConversations, postgres_harness: Harness
) -> None:
    receipt = await postgres_harness.say()
    states = [(await conversations.load(ANN, receipt.conversation_id)).state]
    claim = await postgres_harness.claim(receipt.conversation_id)
    states.append((await conversations.load(ANN, receipt.conversation_id)).state)
    await postgres_harness.timelines.commit(claim.lease, closing(claim, seen_inbox=1, failed=True))

    ended = await conversations.load(ANN, receipt.conversation_id)

    assert [*states, ended.state] == [ConversationState.QUEUED, ConversationState.RUNNING, ConversationState.ERROR]
    assert ended.title == "Greetings"


async def test_an_erasure_leaves_no_row_and_stops_the_worker(
    conversations: PostgresConversations, postgres_harness: Harness, roles: Roles
) -> None:
    harness = postgres_harness
    receipt = await harness.say(
        key=IdempotencyKey("messages", harness.ids.call(), "hash"), uploads=(harness.upload(), harness.upload("b.csv"))
    )
    claim = await harness.claim(receipt.conversation_id)
    await harness.timelines.commit(claim.lease, commit(claim, think(claim, "a", "b")))
    await harness.say("More.", receipt.conversation_id)
    judged = Feedback(receipt.turn_id, "user", Reaction.OK, "", BEGINNING)
    await harness.give_feedback(ANN, receipt.conversation_id, judged)

    erasure = await conversations.erase(ANN, receipt.conversation_id)

    assert erasure.rows == {
        "block": 2,
        "artifact": 2,
        "signal": 1,
        "feedback": 1,
        "tool_effect": 0,
        "usage_event": 0,
        "idempotency": 1,
        "source": 0,
        "lease": 1,
        "approval": 0,
        "mcp_request": 0,
        "detached_run": 0,
        "turn": 1,
        "snippet": 0,
        "conversation": 1,
    }
    assert erasure.object_keys == (harness.upload().object_key,)
    for table in erasure.rows:
        column = "id" if table == "conversation" else "conversation_id"
        query = f"SELECT count(*) FROM {table} WHERE {column} = $1"
        assert await roles.superuser.fetchval(query, receipt.conversation_id) == 0
    with pytest.raises(StaleFence):
        await harness.timelines.commit(claim.lease, commit(claim, think(claim, "late")))
    assert await harness.leases.renew({receipt.conversation_id: claim.lease.fence}) == {}
    with pytest.raises(NotFound):
        await conversations.erase(ANN, receipt.conversation_id)
