"""Sources in memory and in Postgres keep one contract; a key has one number, and erasure includes them."""

from dataclasses import replace

import pytest

from everturn.conversations.postgres import PostgresConversations
from everturn.core.errors import DatabaseFault
from everturn.core.urls import MAX_URL_CHARS
from everturn.timeline.sources import MAX_TEXT_CHARS, SourceDraft, merge_sources
from everturn_testing.database_roles import Roles
from everturn_testing.turns.conversation_sources_contract import SourcesContract
from everturn_testing.turns.harness import ANN, Harness, commit, think

LONG_URL = "https://a.example/" + "x" * (MAX_URL_CHARS - len("https://a.example/"))


class TestPostgresSources(SourcesContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness


async def test_erasing_a_conversation_erases_its_sources(postgres_harness: Harness, roles: Roles) -> None:
    claim = await postgres_harness.start_turn()
    found = merge_sources({}, [SourceDraft("a", "https://a.example"), SourceDraft("b", "https://b.example")])
    await postgres_harness.timelines.commit(
        claim.lease, replace(commit(claim, think(claim, "a")), sources=found.changes)
    )

    erasure = await PostgresConversations(roles.ingress).erase(ANN, claim.lease.conversation_id)

    assert erasure.rows["source"] == 2
    count = "SELECT count(*) FROM source WHERE conversation_id = $1"
    assert await roles.superuser.fetchval(count, claim.lease.conversation_id) == 0


async def test_the_longest_address_and_the_longest_text_fit(postgres_harness: Harness) -> None:
    claim = await postgres_harness.start_turn()
    found = merge_sources({}, [SourceDraft("t\x00\ud800", LONG_URL, text="\x00é" * MAX_TEXT_CHARS)])

    await postgres_harness.timelines.commit(
        claim.lease, replace(commit(claim, think(claim, "a")), sources=found.changes)
    )

    where = ANN, claim.lease.conversation_id
    assert await postgres_harness.timelines.load_sources(*where) == found.rows
    assert len(await postgres_harness.timelines.load_source_text(*where, 1)) == MAX_TEXT_CHARS


async def test_one_address_has_one_number(postgres_harness: Harness) -> None:
    claim = await postgres_harness.start_turn()
    (first,) = merge_sources({}, [SourceDraft("a", "https://a.example")]).changes
    duplicate = replace(first, row=replace(first.row, sid=2))

    with pytest.raises(DatabaseFault, match="23505"):
        await postgres_harness.timelines.commit(
            claim.lease, replace(commit(claim, think(claim, "a")), sources=(first, duplicate))
        )

    assert await postgres_harness.timelines.load_sources(ANN, claim.lease.conversation_id) == ()


class TestMemorySources(SourcesContract):
    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness
