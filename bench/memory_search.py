"""P10: memory search among many snippets: how many true neighbours it finds, and its cost against comparing all.

Needs nothing running: it starts its own Postgres in a folder that it removes. `--snippets 10000` is a quick run.
"""

import asyncio
import itertools
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import numpy as np
from helpers.databases import run_throwaway_database
from helpers.goals import Goal, Sample, build_goal, measure_medians, measure_ms, run_goals

from everturn.core.identity import Principal
from everturn.memory.embedder import DIMENSIONS
from everturn.memory.postgres_search import PostgresMemorySearch, build_lexemes, build_vector_text
from everturn.memory.search import QueryVector, Scope, Snippet, SnippetQuery, SnippetTarget
from everturn.postgres.pool import open_database
from everturn_local.servers.databases import DatabaseUrls

SNIPPETS = 100_000
BIG_SHARE = 0.4
"""Of all snippets: one person's. The others have 2 % each."""
SMALL_SHARE = 0.02
CLUSTERS = 200
QUERIES = 30
TOP = 10
NOW = datetime(2026, 3, 1, tzinfo=UTC)
COMMON = "what did we say about the report"
COLUMNS = "(conversation_id, tenant, project, user_id, turn_id, target, ref, text, words, encoder, embedding, ts)"
EXACT = "SELECT id FROM (SELECT id, embedding <#> $1::text::vector AS d FROM snippet OFFSET 0) AS s ORDER BY d LIMIT 10"
TRUTH = """
SELECT ref FROM (SELECT ref, embedding <#> $1::text::vector AS d FROM snippet WHERE user_id = $2 OFFSET 0) AS s
 ORDER BY d LIMIT 10
"""

Search = Callable[[int], Awaitable[object]]


def measure(snippets: int) -> list[Goal]:
    with run_throwaway_database(durable=False) as urls:
        return asyncio.run(measure_on(urls, snippets))


async def measure_on(urls: DatabaseUrls, snippets: int) -> list[Goal]:
    connection = await asyncpg.connect(urls.superuser)
    await connection.execute(
        "SET maintenance_work_mem = '1GB'; SET work_mem = '64MB'; SET max_parallel_workers_per_gather = 0"
    )
    vectors = build_vectors(snippets)
    people = await fill(connection, vectors)
    asked = build_vectors(QUERIES, seed=2)
    (scan,) = await measure_each(lambda n: connection.fetch(EXACT, build_vector_text(tuple(asked[n]))))
    goals: list[Goal] = []
    # A person has more snippets than are compared one by one when the run is small, too.
    exact_rows = min(20_000, snippets // 5)
    async with open_database(urls.worker, pool_size=1, application_name="bench") as database:
        search = PostgresMemorySearch(database, exact_rows=exact_rows)
        for name, principal in people.items():
            goals += await measure_person(connection, search, name, principal, asked, scan)
    await connection.close()
    return goals


async def measure_person(
    connection: asyncpg.Connection,
    search: PostgresMemorySearch,
    name: str,
    principal: Principal,
    asked: Sequence[Sequence[float]],
    scan: float,
) -> list[Goal]:
    queries = [build_query(tuple(vector)) for vector in asked]
    recall, least = await measure_recall(connection, search, principal, queries)
    alone, rare, common = await measure_each(
        lambda n: search.find_snippets(principal, queries[n]),
        lambda n: search.find_snippets(principal, replace(queries[n], text=f"topic{n} word{n}")),
        lambda n: search.find_snippets(principal, replace(queries[n], text=COMMON)),
    )
    return [
        build_goal(f"P10 {name}: rows of {TOP}", least, TOP, 1.0, at_least=True),
        build_goal(f"P10 {name}: recall@{TOP}", recall, 1.0, 0.95, at_least=True),
        build_goal(f"P10 {name}: p50 against comparing all, ms", alone, scan, 0.1),
        build_goal(f"P10 {name}: hybrid, rare words, ms", rare, alone, 3.0),
        build_goal(f"P10 {name}: hybrid, common words, ms", common, alone, 3.0),
    ]


async def measure_recall(
    connection: asyncpg.Connection, search: PostgresMemorySearch, principal: Principal, queries: Sequence[SnippetQuery]
) -> tuple[float, int]:
    """The share of the true neighbours that is found, and the least number of rows that came."""
    shares: list[float] = []
    counts: list[int] = []
    for query in queries:
        assert query.vector is not None
        rows = await connection.fetch(TRUTH, build_vector_text(query.vector.vector), principal.user_id)
        found = await search.find_snippets(principal, query)
        shares.append(len({row["ref"] for row in rows} & {hit.ref for hit in found}) / TOP)
        counts.append(len(found))
    return statistics.mean(shares), min(counts)


def build_query(vector: tuple[float, ...]) -> SnippetQuery:
    long = timedelta(days=4000)
    return SnippetQuery(Scope(), "", NOW - long, NOW + long, NOW, QueryVector("bench", vector), limit=TOP)


def build_vectors(count: int, seed: int = 1) -> np.ndarray:
    """Points around cluster centres, as texts about topics are; always the same ones."""
    centres = np.random.default_rng(0).normal(size=(CLUSTERS, DIMENSIONS))
    generator = np.random.default_rng(seed)
    points = centres[generator.integers(CLUSTERS, size=count)] + 0.8 * generator.normal(size=(count, DIMENSIONS))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


async def fill(connection: asyncpg.Connection, vectors: np.ndarray) -> dict[str, Principal]:
    """All rows at once, then the indexes: as a restore would. Every text has the words of COMMON."""
    await connection.execute("DROP INDEX snippet_nearest; DROP INDEX snippet_words")
    big = int(BIG_SHARE * len(vectors))
    small = int(SMALL_SHARE * len(vectors))
    records = [build_record(n, "big" if n < big else f"small-{(n - big) // small}") for n in range(len(vectors))]
    await connection.execute("CREATE TEMP TABLE loaded (LIKE snippet); ALTER TABLE loaded ALTER embedding TYPE text")
    names = COLUMNS.strip("()").split(", ")
    rows = (
        (*record[:10], build_vector_text(tuple(vector.tolist())), record[10])
        for record, vector in zip(records, vectors, strict=True)
    )
    await connection.execute("ALTER TABLE loaded ALTER id DROP NOT NULL")
    await connection.copy_records_to_table("loaded", records=rows, columns=names)
    chosen = ", ".join(names).replace("embedding", "embedding::vector")
    await connection.execute(f"INSERT INTO snippet {COLUMNS} SELECT {chosen} FROM loaded ORDER BY random()")
    await connection.execute("CREATE INDEX snippet_words ON snippet USING gin (words)")
    await connection.execute("CREATE INDEX snippet_nearest ON snippet USING hnsw (embedding vector_ip_ops)")
    await connection.execute("VACUUM ANALYZE snippet")
    return {"2 % of all": Principal("t", "p", "small-0"), "40 % of all": Principal("t", "p", "big")}


def build_record(n: int, user_id: str) -> tuple[object, ...]:
    text = f"{COMMON} topic{n % 1000} word{n} and more of the same"
    snippet = Snippet(SnippetTarget.USER, f"ref-{n}", text, "")
    words = build_lexemes(Principal("t", "p", user_id), snippet)
    ts = NOW - timedelta(days=365)
    return f"conv_{n}", "t", "p", user_id, f"turn_{n}", "user", snippet.ref, text, words, "bench", ts


async def measure_each(*searches: Search) -> list[float]:
    """The median milliseconds of each over all questions, after a warm round.

    They search for different questions at a time, because repeating one would find its pages in memory.
    """

    def build_sample(place: int, search: Search) -> Sample:
        begin = place * QUERIES // len(searches)
        numbers = itertools.islice(itertools.cycle(range(QUERIES)), begin, None)
        return lambda: measure_ms(lambda: search(next(numbers)))

    samples = [build_sample(place, search) for place, search in enumerate(searches)]
    return await measure_medians(samples, QUERIES, warmups=QUERIES)


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, snippets=SNIPPETS))
