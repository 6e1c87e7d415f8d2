"""Memory search in memory and in Postgres keep one contract, with few rows and with so many that the graph is used."""

from dataclasses import replace

import pytest

from everturn.core.identity import Principal
from everturn.memory.postgres_search import PostgresMemorySearch, build_lexemes
from everturn.memory.search import Scope
from everturn_testing.database_roles import Roles
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.memory.search_contract import (
    ENCODER,
    CatalogContract,
    MemoryDesk,
    MemorySearchContract,
    SnippetIndexContract,
    asking,
    point,
    said,
)
from everturn_testing.memory.snippets import MemorySnippets
from everturn_testing.turns.harness import Harness


class TestPostgresMemorySearch(MemorySearchContract, CatalogContract):
    """Few rows: all are compared."""


class TestPostgresMemorySearchThroughTheGraph(MemorySearchContract):
    """The same with the graph over the vectors of all users."""

    @pytest.fixture
    def desk(self, desk: MemoryDesk, roles: Roles) -> MemoryDesk:
        return replace(desk, search=PostgresMemorySearch(roles.worker, exact_rows=0))


@pytest.mark.parametrize("exact_rows", [20_000, 0])
async def test_a_small_user_in_a_large_tenant_gets_all_requested_rows(
    desk: MemoryDesk, roles: Roles, exact_rows: int
) -> None:
    crowd = replace(desk.harness.principal, user_id=f"{desk.harness.principal.user_id}-crowd")
    await fill(roles, crowd, 3_000)
    job = await desk.remember(*((said(f"mine {n}"), point(0.1, 1.0, n / 100)) for n in range(12)))
    search = PostgresMemorySearch(roles.worker, exact_rows=exact_rows)
    query = replace(asking(job, vector=point(1.0)), scope=Scope(), limit=10)

    found = await search.find_snippets(desk.harness.principal, query)

    assert [hit.text[:4] for hit in found] == ["mine"] * 10


async def test_very_common_words_are_ignored(desk: MemoryDesk, roles: Roles) -> None:
    await fill(roles, desk.harness.principal, 400)
    job = await desk.remember((said("the usual zebra"), point(0.0, 1.0)))
    query = replace(asking(job, "the usual zebra", point(1.0)), scope=Scope())

    found = await desk.search.find_snippets(desk.harness.principal, query)

    # Were they counted, the nearest rows of the crowd would stand in both orders, and before it.
    assert found[0].text == "the usual zebra"


async def test_a_search_in_one_conversation_ignores_all_others(desk: MemoryDesk, roles: Roles) -> None:
    await fill(roles, desk.harness.principal, 5_000)
    job = await desk.remember(*((said(f"usual {n}"), None) for n in range(8)))
    # What an index has not sorted in yet is read whole.
    await roles.superuser.fetchval("SELECT gin_clean_pending_list('snippet_words')")

    found = await desk.ask(asking(job, "usual"))

    assert sorted(found) == [f"usual {n}" for n in range(8)]


@pytest.mark.parametrize("role", ["ingress", "worker"])
async def test_only_the_worker_may_take_turns_to_index(role: str, roles: Roles) -> None:
    rights = {
        name: await roles.superuser.fetchval(
            "SELECT has_function_privilege($1, p.oid, 'EXECUTE') FROM pg_proc p WHERE p.proname = $2",
            f"everturn_{role}",
            name,
        )
        for name in ("search_snippets", "nearest_snippets", "claim_unindexed")
    }

    assert rights == {"search_snippets": True, "nearest_snippets": False, "claim_unindexed": role == "worker"}


async def fill(roles: Roles, principal: Principal, count: int) -> None:
    """Rows of a conversation of its own, all nearer to `point(1.0)` than anything else and with the same words."""
    await roles.superuser.execute(
        """
        INSERT INTO snippet (conversation_id, tenant, project, user_id, turn_id, target, ref, text, words, encoder,
                             embedding, ts)
        SELECT 'conv_crowd', $1, $2, $3, 'turn_crowd', 'user', 'ar:crowd' || n, 'the usual ' || n, $5, $4,
               ('[1,' || random() || repeat(',0', 382) || ']')::vector, '2026-03-01'
          FROM generate_series(1, $6) AS n
        """,
        principal.tenant,
        principal.project,
        principal.user_id,
        ENCODER,
        build_words(principal),
        count,
    )


def build_words(principal: Principal) -> list[str]:
    return build_lexemes(principal, said("the usual"))


class TestMemorySnippets(SnippetIndexContract, MemorySearchContract, CatalogContract):
    @pytest.fixture
    def desk(self, memory_harness: Harness, memory_platform: MemoryPlatform) -> MemoryDesk:
        snippets = MemorySnippets(memory_platform)
        return MemoryDesk(memory_harness, snippets, snippets)
