"""Transactions, limits, and what the driver's errors become."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest
from helpers.pgbouncer import run_pgbouncer

from everturn.core.errors import DatabaseFault, Invalid, Unavailable
from everturn.core.identity import Principal
from everturn.core.metrics import DISK_FULL
from everturn.postgres.pool import DISK_FULL_KEPT_S, Database, LockTimeout, SchemaDiffers, open_database, translated
from everturn_local.servers.databases import DatabaseUrls
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN, Harness

_SESSION = """
SELECT current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('jit'),
       current_setting('application_name'), $1::integer AS prepared
"""


async def test_opening_needs_no_server_and_using_it_says_unavailable() -> None:
    url = "postgresql://everturn_worker:x@127.0.0.1:1/everturn"

    async with open_database(url, pool_size=2, application_name="test") as database:
        with pytest.raises(Unavailable):
            await database.check()


async def test_a_wrong_password_is_not_called_unavailable(database: DatabaseUrls) -> None:
    url = database.worker.replace("://everturn_worker:", "://everturn_worker:wrong")

    async with open_database(url, pool_size=2, application_name="test") as opened:
        with pytest.raises(DatabaseFault, match="password authentication failed"):
            await opened.check()


async def test_a_pooler_in_session_mode_keeps_what_a_session_has(database: DatabaseUrls) -> None:
    with run_pgbouncer(database.worker) as url:
        for _ in range(2):
            async with open_database(url, pool_size=1, application_name="test") as opened:
                for _ in range(2):
                    async with opened.transaction(ANN) as transaction:
                        settings = await transaction.fetchrow(_SESSION, 1)
                assert settings and tuple(settings.values()) == ("8s", "2s", "off", "test", 1)


async def test_a_connection_that_was_ended_is_unavailable_once_and_then_replaced(roles: Roles) -> None:
    await roles.worker.check()

    with pytest.raises(Unavailable):
        async with roles.worker.connection() as connection:
            pid = await connection.fetchval("SELECT pg_backend_pid()")
            await roles.superuser.fetchval("SELECT pg_terminate_backend($1)", pid)
            await connection.fetchval("SELECT 1")

    await roles.worker.check()


_NO_SPACE = "DO $$ BEGIN RAISE disk_full USING MESSAGE = 'could not extend file'; END $$"


async def test_a_full_disk_of_the_server_is_remembered_for_a_minute(database: DatabaseUrls) -> None:
    now_s, before = 0.0, DISK_FULL.labels("postgres_disk")._value.get()
    async with asyncpg.create_pool(database.worker, min_size=0, max_size=1) as pool:
        full = Database(cast(Any, pool), monotonic=lambda: now_s)
        await full.check_disk()

        with pytest.raises(Unavailable, match="could not extend file"):
            async with full.transaction(ANN) as transaction:
                with translated():
                    await transaction.execute(_NO_SPACE)

        await full.check()
        with pytest.raises(Unavailable, match="could not extend file"):
            await full.check_disk()
        now_s = DISK_FULL_KEPT_S
        await full.check_disk()
        assert DISK_FULL.labels("postgres_disk")._value.get() == before + 1


async def test_an_exhausted_pool_is_unavailable(database: DatabaseUrls) -> None:
    async with open_database(database.worker, pool_size=1, application_name="test") as opened, opened.connection():
        with pytest.raises(Unavailable):
            async with asyncio.timeout(10), opened.connection():
                pass


async def test_a_slow_statement_is_cut_off(roles: Roles) -> None:
    with pytest.raises(Unavailable):
        async with roles.worker.transaction(ANN) as transaction:
            await transaction.execute("SET LOCAL statement_timeout = '50ms'")
            await transaction.execute("SELECT pg_sleep(5)")


async def cancel_running(database: Database, statement: str) -> None:
    """Cancels the statement's caller as soon as it is sent, and returns when that has ended."""
    begun = asyncio.Event()

    async def ask() -> None:
        async with database.connection() as connection:
            begun.set()
            await connection.execute(statement)

    asking = asyncio.create_task(ask())
    await begun.wait()
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asking, 15)


async def test_a_cancelled_short_statement_completes(roles: Roles) -> None:
    came_back = asyncio.Event()
    listener: Any = roles.superuser
    await listener.add_listener("came_back", lambda *_: came_back.set())

    # A machine that is very busy may cut one short that should have come back; an impatient driver cuts them all.
    for _ in range(20):
        await cancel_running(roles.worker, "SELECT pg_notify('came_back', '') FROM pg_sleep(0.05)")
        await listener.fetchval("SELECT 1")
        if came_back.is_set():
            break

    assert came_back.is_set()


async def test_a_cancelled_long_statement_keeps_its_connection(
    database: DatabaseUrls,
) -> None:
    async with open_database(database.worker, pool_size=1, application_name="test") as opened:
        async with opened.connection() as connection:
            pid = await connection.fetchval("SELECT pg_backend_pid()")

        await cancel_running(opened, "SELECT pg_sleep(60)")

        async with opened.connection() as connection:
            assert await connection.fetchval("SELECT pg_backend_pid()") == pid


async def test_an_idle_transaction_releases_its_locks(roles: Roles, postgres_harness: Harness) -> None:
    receipt = await postgres_harness.say()

    with pytest.raises(Unavailable):
        async with roles.worker.transaction(ANN) as transaction:
            await transaction.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
            await transaction.execute("UPDATE conversation SET title = 'x' WHERE id = $1", receipt.conversation_id)
            assert await postgres_harness.leases.try_claim(receipt.conversation_id) is not None
            await transaction.execute("SELECT 1")


async def test_a_lock_that_is_held_too_long_has_its_own_error(roles: Roles, postgres_harness: Harness) -> None:
    receipt = await postgres_harness.say()
    async with roles.superuser.transaction():
        await roles.superuser.execute("SELECT FROM conversation WHERE id = $1 FOR UPDATE", receipt.conversation_id)

        with pytest.raises(LockTimeout):
            await postgres_harness.leases.try_claim(receipt.conversation_id)


async def test_a_text_that_cannot_be_stored_is_invalid(roles: Roles) -> None:
    for text in ("\x00", "\ud800"):
        with pytest.raises(Invalid):
            async with roles.worker.connection() as connection:
                await connection.fetchval("SELECT $1::text", text)


async def test_an_exception_rolls_back(roles: Roles, postgres_harness: Harness) -> None:
    receipt = await postgres_harness.say()

    with pytest.raises(ZeroDivisionError):
        async with roles.worker.transaction(ANN) as transaction:
            await transaction.execute("UPDATE conversation SET title = 'x' WHERE id = $1", receipt.conversation_id)
            raise ZeroDivisionError

    title = await roles.superuser.fetchval("SELECT title FROM conversation WHERE id = $1", receipt.conversation_id)
    assert title == ""


async def test_a_transaction_whose_failed_statement_was_ignored_is_a_fault(roles: Roles) -> None:
    with pytest.raises(DatabaseFault, match="ended with ROLLBACK"):
        async with roles.worker.transaction(ANN) as transaction:
            with contextlib.suppress(DatabaseFault), translated():
                await transaction.fetchval("SELECT 1 / 0")


_NAMED = "SELECT concat_ws('|', current_setting('app.tenant', true), current_setting('app.user_id', true))"


async def test_a_transaction_runs_as_its_principal_however_it_is_called(roles: Roles) -> None:
    principal = Principal("o'hara\\'; COMMIT; --", "p", "\u00fc\u2028\U0001f600")

    async with roles.worker.transaction(principal, readonly=True) as transaction:
        assert await transaction.fetchval(_NAMED) == f"{principal.tenant}|{principal.user_id}"


async def test_no_principal_outlives_its_transaction_wherever_it_is_cancelled(database: DatabaseUrls) -> None:
    async def run(opened: Database) -> None:
        async with opened.transaction(ANN) as transaction:
            await transaction.fetchval("SELECT 1")

    async with open_database(database.worker, pool_size=1, application_name="test") as opened:
        for steps in range(40):
            running = asyncio.create_task(run(opened))
            for _ in range(steps):
                await asyncio.sleep(0.0002)
            running.cancel()
            await asyncio.wait([running])

            async with opened.connection() as connection:
                assert await connection.fetchval(_NAMED) in ("", "|")
            with pytest.raises(Exception, match="only be used in transaction blocks"):
                async with opened.connection() as connection:
                    await connection.execute("SAVEPOINT a")


async def test_a_rejected_statement_is_a_fault_that_names_its_sqlstate(roles: Roles) -> None:
    with pytest.raises(DatabaseFault, match="22012: division by zero"):
        async with roles.worker.connection() as connection:
            await connection.fetchval("SELECT 1 / 0")


@pytest.mark.parametrize(
    "error", [asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError]
)
def test_another_schema_is_unavailable_until_the_migration_is_done(error: type[asyncpg.PostgresError]) -> None:
    with pytest.raises(SchemaDiffers), translated():
        raise error("of another version")


async def test_a_server_that_was_killed_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", password="x", durable=False)
    server.start()
    try:
        async with open_database(server.superuser_url(), pool_size=2, application_name="test") as database:
            await database.check()
            server.kill()
            server.stop()
            with pytest.raises(Unavailable):
                await database.check()

            server.start()

            await database.check()
    finally:
        server.stop()
