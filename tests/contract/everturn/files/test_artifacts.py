"""Artifacts in memory and in Postgres keep one contract."""

from dataclasses import replace

import pytest

from everturn.files.postgres import PostgresArtifacts
from everturn_testing.database_roles import Roles
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.artifacts_contract import ArtifactsContract, build_row
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import ANN, Harness, commit, think


@pytest.fixture
def artifacts(roles: Roles) -> PostgresArtifacts:
    return PostgresArtifacts(roles.worker)


class TestPostgresArtifacts(ArtifactsContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness


async def test_a_description_that_no_column_can_hold_is_made_to_fit(
    artifacts: PostgresArtifacts, postgres_harness: Harness
) -> None:
    claim = await postgres_harness.start_turn()
    assert claim.turn_id is not None
    row = build_row(postgres_harness, claim.turn_id, "fi:t.files/a", description="new \x00")

    await postgres_harness.timelines.commit(claim.lease, replace(commit(claim, think(claim, "a")), artifacts=(row,)))

    assert (await artifacts.load(ANN, row.id)).description == "new \ufffd"


async def test_a_later_commit_is_newer_for_any_id(artifacts: PostgresArtifacts, postgres_harness: Harness) -> None:
    claim = await postgres_harness.start_turn()
    assert claim.turn_id is not None
    later, sooner = (build_row(postgres_harness, claim.turn_id, "fi:t.files/a") for _ in range(2))
    first, then = think(claim, "a"), think(claim, "b", after=think(claim, "a"))

    await postgres_harness.timelines.commit(claim.lease, replace(commit(claim, first), artifacts=(sooner,)))
    gone = later.model_copy(update={"removed": True})
    await postgres_harness.timelines.commit(claim.lease, replace(commit(claim, then), artifacts=(gone,)))

    assert later.id < sooner.id
    assert await artifacts.load_tree(ANN, claim.lease.conversation_id, "fi:t.files/") == ()


class TestMemoryArtifacts(ArtifactsContract):
    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness

    @pytest.fixture
    def artifacts(self, memory_platform: MemoryPlatform) -> MemoryArtifacts:
        return MemoryArtifacts(memory_platform)
