"""Turns read back in one snapshot, page by page, with their details."""

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from everturn.core.errors import Invalid, NotFound
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import EventCursor
from everturn.feedback.model import Feedback, Reaction
from everturn.postgres.pool import Connection, Database
from everturn.turns.ports import PAGE_BYTES
from everturn.turns.postgres_reading import PostgresTurns
from everturn_testing.core import BEGINNING
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN, Harness, closing, commit, think


@pytest.fixture(params=["ingress", "worker"])
def turns(request: pytest.FixtureRequest, roles: Roles) -> PostgresTurns:
    return PostgresTurns(getattr(roles, request.param))


async def run_turns(harness: Harness, count: int) -> tuple[ConversationId, list[TurnId]]:
    """That many ended turns, each with two blocks."""
    ids: list[TurnId] = []
    conversation_id = None
    for n in range(count):
        receipt = await harness.say(str(n), conversation_id)
        conversation_id = receipt.conversation_id
        claim = await harness.claim(conversation_id)
        blocks = think(claim, str(n))
        await harness.timelines.commit(claim.lease, commit(claim, blocks))
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, after=blocks))
        await harness.leases.release(claim.lease, requeue=False)
        ids.append(receipt.turn_id)
    assert conversation_id is not None
    return conversation_id, ids


async def test_pages_go_back_from_the_newest_turns(turns: PostgresTurns, postgres_harness: Harness) -> None:
    conversation_id, ids = await run_turns(postgres_harness, 5)

    newest = await turns.load_page(ANN, conversation_id, limit=2)
    middle = await turns.load_page(ANN, conversation_id, limit=2, cursor=newest.next_cursor)
    oldest = await turns.load_page(ANN, conversation_id, limit=2, cursor=middle.next_cursor)

    pages = (oldest, middle, newest)
    assert [record.turn.id for page in pages for record in page.turns] == ids
    assert [block.seq for page in pages for record in page.turns for block in record.blocks] == list(range(1, 11))
    assert oldest.next_cursor is None
    assert newest.cursor == EventCursor(5, 9)


async def test_a_page_ends_before_it_gets_too_large_but_has_one_turn(
    turns: PostgresTurns, postgres_harness: Harness
) -> None:
    conversation_id, ids = await run_turns(postgres_harness, 4)
    whole = await turns.load_page(ANN, conversation_id)

    pages = [await turns.load_page(ANN, conversation_id, max_bytes=1)]
    while cursor := pages[-1].next_cursor:
        pages.append(await turns.load_page(ANN, conversation_id, cursor=cursor, max_bytes=1))

    read = [record for page in reversed(pages) for record in page.turns]
    assert [record.turn.id for record in read] == ids
    assert read == list(whole.turns)
    assert [len(page.turns) for page in pages] == [1] * 4
    named = await turns.load_page(ANN, conversation_id, turn_ids=ids[:3], max_bytes=1)
    assert ([record.turn.id for record in named.turns], named.next_cursor) == ([ids[2]], "3")
    more = await turns.load_page(ANN, conversation_id, turn_ids=ids[:3], cursor=named.next_cursor, max_bytes=1)
    last = await turns.load_page(ANN, conversation_id, turn_ids=ids[:3], cursor=more.next_cursor, max_bytes=1)
    assert [[record.turn.id for record in page.turns] for page in (more, last)] == [[ids[1]], [ids[0]]]
    assert last.next_cursor is None


async def test_a_page_counts_signals_in_its_size(turns: PostgresTurns, postgres_harness: Harness) -> None:
    conversation_id, ids = await run_turns(postgres_harness, 2)
    opened = await postgres_harness.say("Next.", conversation_id)
    for _ in range(3):
        await postgres_harness.say("x" * (PAGE_BYTES // 3), conversation_id)

    page = await turns.load_page(ANN, conversation_id)
    rest = await turns.load_page(ANN, conversation_id, cursor=page.next_cursor)

    assert [record.turn.id for record in page.turns] == [opened.turn_id]
    assert [len(signal.text) for signal in page.turns[0].signals] == [PAGE_BYTES // 3] * 3
    assert [record.turn.id for record in rest.turns] == ids


async def test_rated_turns_are_found_behind_others(turns: PostgresTurns, postgres_harness: Harness) -> None:
    conversation_id, ids = await run_turns(postgres_harness, 4)
    for turn_id in ids[:2]:
        judged = Feedback(turn_id, "user", Reaction.OK, "", BEGINNING)
        await postgres_harness.give_feedback(ANN, conversation_id, judged)

    page = await turns.load_page(ANN, conversation_id, limit=1, with_feedback=True)

    assert ([record.turn.id for record in page.turns], page.next_cursor) == ([ids[1]], "2")
    rest = await turns.load_page(ANN, conversation_id, limit=1, with_feedback=True, cursor=page.next_cursor)
    assert ([record.turn.id for record in rest.turns], rest.next_cursor) == ([ids[0]], None)
    named = await turns.load_page(ANN, conversation_id, with_feedback=True, turn_ids=ids[1:])
    assert [record.turn.id for record in named.turns] == [ids[1]]


async def test_a_page_names_the_open_turn_without_reading_it(turns: PostgresTurns, postgres_harness: Harness) -> None:
    conversation_id, _ = await run_turns(postgres_harness, 1)
    before = await turns.load_page(ANN, conversation_id, turn_ids=[])
    receipt = await postgres_harness.say("Next.", conversation_id)

    page = await turns.load_page(ANN, conversation_id, turn_ids=[])

    assert (before.open_turn_id, page.open_turn_id, page.turns) == (None, receipt.turn_id, ())


async def test_named_turns_are_read_and_unknown_ones_passed_over(
    turns: PostgresTurns, postgres_harness: Harness
) -> None:
    conversation_id, ids = await run_turns(postgres_harness, 3)

    page = await turns.load_page(ANN, conversation_id, turn_ids=[ids[2], ids[0], postgres_harness.ids.turn()])

    assert [record.turn.id for record in page.turns] == [ids[0], ids[2]]
    assert [len(record.blocks) for record in page.turns] == [2, 2]


async def test_a_turn_comes_with_its_signals_and_feedback(turns: PostgresTurns, postgres_harness: Harness) -> None:
    claim = await postgres_harness.start_turn()
    assert claim.turn_id is not None
    conversation_id = claim.lease.conversation_id
    followup = await postgres_harness.say("More.", conversation_id)
    judged = Feedback(claim.turn_id, "user", Reaction.NEUTRAL, "", BEGINNING)
    await postgres_harness.give_feedback(ANN, conversation_id, judged)

    (record,) = (await turns.load_page(ANN, conversation_id)).turns

    assert [signal.id for signal in record.signals] == [followup.signal_id]
    assert record.feedback == (judged,)


async def test_a_queued_turn_has_no_blocks_yet(turns: PostgresTurns, postgres_harness: Harness) -> None:
    conversation_id, _ = await run_turns(postgres_harness, 1)
    await postgres_harness.say("Next.", conversation_id)

    page = await turns.load_page(ANN, conversation_id)

    assert [len(record.blocks) for record in page.turns] == [2, 0]


async def test_a_conversation_without_turns_is_an_empty_page(turns: PostgresTurns, postgres_harness: Harness) -> None:
    receipt = await postgres_harness.say()

    page = await turns.load_page(ANN, receipt.conversation_id, turn_ids=[])

    assert (page.turns, page.next_cursor) == ((), None)
    with pytest.raises(NotFound):
        await turns.load_page(ANN, postgres_harness.ids.conversation())


@pytest.mark.parametrize("cursor", ["", "x", "-1", "\u0661", "1" * 10])
async def test_a_malformed_cursor_is_invalid(cursor: str, turns: PostgresTurns, postgres_harness: Harness) -> None:
    receipt = await postgres_harness.say()

    with pytest.raises(Invalid):
        await turns.load_page(ANN, receipt.conversation_id, cursor=cursor)


def test_a_worker_does_not_load_what_only_the_ingress_needs() -> None:
    program = (
        "import sys\n"
        "from everturn.files import postgres\n"
        "from everturn.turns import postgres_leases, postgres_reading, postgres_timelines\n"
        "sys.exit('sqlalchemy' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0


TURNS, TURN_BLOCKS = 500, 40
_MANY_TURNS = """
INSERT INTO turn
SELECT (jsonb_populate_record(turn, jsonb_build_object(
           'id', turn.id || n, 'ordinal', n + 1, 'first_seq', n * $3 + 100))).*
  FROM turn, generate_series(1, $2::integer) AS n WHERE turn.id = $1
"""
_MANY_BLOCKS = """
INSERT INTO block
SELECT (jsonb_populate_record(block, jsonb_build_object('seq', n + 100, 'turn_id', $2::text || (n / $4)))).*
  FROM block, generate_series($4::integer, ($3::integer + 1) * $4 - 1) AS n
 WHERE conversation_id = $1 AND seq = (SELECT min(seq) FROM block WHERE conversation_id = $1)
"""
_COUNT_READ = """
SELECT COALESCE(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE relname = 'block'
"""
"""Of this transaction and of those before it that are not in the shared statistics yet."""


class CountingDatabase:
    """Counts the rows of blocks that the last transaction read, including filtered ones."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.blocks_read = 0

    @asynccontextmanager
    async def transaction(self, *arguments: Any, **options: Any) -> AsyncGenerator[Connection]:
        async with self._database.transaction(*arguments, **options) as transaction:
            before = await transaction.fetchval(_COUNT_READ)
            yield transaction
            self.blocks_read = await transaction.fetchval(_COUNT_READ) - before


async def test_a_page_reads_the_blocks_of_its_own_turns_only(roles: Roles, postgres_harness: Harness) -> None:
    conversation_id, (turn_id,) = await run_turns(postgres_harness, 1)
    await roles.superuser.execute("SET session_replication_role = replica")
    await roles.superuser.execute(_MANY_TURNS, turn_id, TURNS, TURN_BLOCKS)
    await roles.superuser.execute(_MANY_BLOCKS, conversation_id, turn_id, TURNS, TURN_BLOCKS)
    await roles.superuser.execute("SET session_replication_role = DEFAULT")
    await roles.superuser.execute("ANALYZE turn, block")
    database = CountingDatabase(roles.ingress)
    turns = PostgresTurns(cast(Database, database))
    named = [TurnId(f"{turn_id}{n}") for n in (2, 250, 480)]

    # Postgres makes a new plan for the first five executions; then it may keep one for any parameters.
    for _ in range(8):
        older = await turns.load_page(ANN, conversation_id, cursor="100", limit=3)
        of_older = database.blocks_read
        some = await turns.load_page(ANN, conversation_id, turn_ids=named)
        of_some = database.blocks_read

        for page, read in ((older, of_older), (some, of_some)):
            assert [len(record.blocks) for record in page.turns] == [TURN_BLOCKS] * 3
            # Their sizes, also that of one turn more, and the blocks themselves.
            assert read <= 7 * TURN_BLOCKS
        assert [record.turn.id for record in some.turns] == named
