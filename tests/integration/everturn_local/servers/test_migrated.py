"""Databases on servers of their own."""

import os
from pathlib import Path

import asyncpg
import pytest
from helpers.databases import run_throwaway_database

from everturn_local.home import Home
from everturn_local.servers.migrated import run_database


async def count_turns(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval("SELECT count(*) FROM turn")
    finally:
        await connection.close()


async def test_a_throwaway_database_has_the_schema_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with run_throwaway_database(durable=False) as urls:
        turns = await count_turns(urls.worker)

    assert turns == 0
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError, match="Connect call failed"):
        await count_turns(urls.worker)


async def test_a_database_keeps_its_rows_and_its_server_stops_after_a_failure(home: Home) -> None:
    with pytest.raises(ZeroDivisionError), run_database(home, durable=False) as urls:
        connection = await asyncpg.connect(urls.superuser)
        await connection.execute("CREATE TABLE kept (id int)")
        await connection.close()
        _ = 1 / 0

    with run_database(home, durable=False) as urls:
        connection = await asyncpg.connect(urls.superuser)
        assert await connection.fetchval("SELECT count(*) FROM kept") == 0
        await connection.close()
