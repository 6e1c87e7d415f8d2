"""P10: memory search among many snippets: how many true neighbours it finds, and its cost against comparing all.

Prints `goal | ours | baseline | ratio | target | holds` rows, or JSON with --json. Needs nothing running: it starts its
own Postgres in a folder that it removes. `--snippets 10000` is a quick run.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import numpy as np

from everturn.model.identity import Principal
from everturn.model.memory.snippets import Snippet, SnippetTarget
from everturn.ports.memory.embedder import DIMENSIONS
from everturn.ports.memory.search import QueryVector, Scope, SnippetQuery
from everturn.postgres.database import open_database
from everturn.postgres.memory.lexemes import build_lexemes
from everturn.postgres.memory.search import PostgresMemorySearch
from everturn.postgres.memory.vectors import build_vector_text
from everturn_local.home import save_home, save_secrets
from everturn_local.migrations import run_migrations
from everturn_local.servers.databases import DatabaseUrls, build_urls, save_database, save_roles
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.settings import load_environment

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


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table. Times in milliseconds, recall as a share."""

    goal: str
    ours: float
    baseline: float
    ratio: float
    target: float
    holds: bool


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true", help="one JSON array instead of a table")
    arguments.add_argument("--snippets", type=int, default=SNIPPETS, help="how many there are in all")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # the server runs as another user when we are root
        results = run_with_server(Path(folder), chosen.snippets)
    if chosen.json:
        print(json.dumps([asdict(result) for result in results]))
    else:
        print("goal | ours | baseline | ratio | target | holds")
        for row in results:
            print(f"{row.goal} | {row.ours:.3f} | {row.baseline:.3f} | {row.ratio:.2f} | {row.target} | {row.holds}")
    sys.exit(0 if all(result.holds for result in results) else 1)


def run_with_server(folder: Path, snippets: int) -> list[Result]:
    home = save_home(folder)
    passwords = save_secrets(home)
    server = EmbeddedPostgres(home.postgres, password=passwords.postgres, durable=False)
    server.start()
    try:
        save_roles(server, passwords)
        save_database(server)
        urls = build_urls(server, passwords)
        run_migrations(urls.owner, env=load_environment())
        return asyncio.run(measure(urls, snippets))
    finally:
        server.stop()


async def measure(urls: DatabaseUrls, snippets: int) -> list[Result]:
    connection = await asyncpg.connect(urls.superuser)
    await connection.execute(
        "SET maintenance_work_mem = '1GB'; SET work_mem = '64MB'; SET max_parallel_workers_per_gather = 0"
    )
    vectors = build_vectors(snippets)
    people = await fill(connection, vectors)
    asked = build_vectors(QUERIES, seed=2)
    scan = await time_each(lambda n: connection.fetch(EXACT, build_vector_text(tuple(asked[n]))))
    results: list[Result] = []
    # A person has more snippets than are compared one by one when the run is small, too.
    exact_rows = min(20_000, snippets // 5)
    async with open_database(urls.worker, pool_size=1, application_name="bench") as database:
        search = PostgresMemorySearch(database, exact_rows=exact_rows)
        for name, principal in people.items():
            results += await measure_person(connection, search, name, principal, asked, scan)
    await connection.close()
    return results


async def measure_person(
    connection: asyncpg.Connection,
    search: PostgresMemorySearch,
    name: str,
    principal: Principal,
    asked: Sequence[Sequence[float]],
    *scans: float,
) -> list[Result]:
    queries = [build_query(tuple(vector)) for vector in asked]
    recall, least = await measure_recall(connection, search, principal, queries)
    alone = await time_each(lambda n: search.find_snippets(principal, queries[n]))
    rare = await time_each(lambda n: search.find_snippets(principal, replace(queries[n], text=f"topic{n} word{n}")))
    common = await time_each(lambda n: search.find_snippets(principal, replace(queries[n], text=COMMON)))
    scan = scans[0]
    return [
        Result(f"P10 {name}: rows of {TOP}", least, TOP, least / TOP, 1.0, least == TOP),
        Result(f"P10 {name}: recall@{TOP}", recall, 1.0, recall, 0.95, recall >= 0.95),
        Result(f"P10 {name}: p50 against comparing all, ms", alone, scan, alone / scan, 0.1, alone <= 0.1 * scan),
        Result(f"P10 {name}: hybrid, rare words, ms", rare, alone, rare / alone, 3.0, rare <= 3 * alone),
        Result(f"P10 {name}: hybrid, common words, ms", common, alone, common / alone, 3.0, common <= 3 * alone),
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


async def time_each(call: Search) -> float:
    """The median time of one call in milliseconds, after a warm round."""
    times: list[float] = []
    for round_number in range(2):
        for n in range(QUERIES):
            started = time.perf_counter()
            await call(n)
            if round_number:
                times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


if __name__ == "__main__":
    main()
