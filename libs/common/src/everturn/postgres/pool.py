"""The connection pool of Postgres: transactions as a principal, time limits on every wait, our error classes."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, Literal, LiteralString, TypeVar, cast

import asyncpg
import structlog

from everturn.core.cancellation import keep_cancellation
from everturn.core.errors import Conflict, DatabaseFault, EverturnError, Invalid, OutOfOrder, StaleFence, Unavailable
from everturn.core.identity import Principal
from everturn.core.lease_timing import LeaseTiming
from everturn.core.metrics import DISK_FULL

_log = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S = 5.0
ACQUIRE_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 5.0
CANCEL_GRACE_S = 0.1
"""How long a statement of a cancelled caller can still complete. Cancelling it at once needs another connection to
notify the server, and a wait for that; most statements complete sooner."""
DISK_FULL_KEPT_S = 60.0
"""How long readiness reports that the server's disk was full, after the last statement that failed because of it."""
END_TIMEOUT_S = 5.0
"""How long to wait for the end of a cancelled statement before its connection is closed."""

STALE_FENCE, OUT_OF_ORDER, NOT_RUNNING = "EV001", "EV002", "EV004"
"""The SQLSTATEs of the functions with which a worker writes a turn."""
_TRANSIENT = ("08", "40", "53", "57", "25P03", "25006")
"""SQLSTATE classes of transient errors: connection, rollback, resources, operator; timeout and read-only."""

_OTHER_SCHEMA = ("42P01", "42703", "42883", "42804", "0A000")
"""A table, column, function or type differs from what this version expects: before or during a migration."""

Row = Mapping[str, Any]
T = TypeVar("T")


class LockTimeout(Unavailable):
    """Another transaction held a row for too long."""


class SchemaDiffers(Unavailable):
    """The database's schema is not the one that this version needs. Run the migrations, or wait until they are done."""


def build_session_settings(lease: LeaseTiming) -> dict[str, str]:
    """The server settings of our sessions; our queries are too short for jit."""
    return {
        "statement_timeout": "8s",
        "lock_timeout": f"{lease.lock_timeout_s * 1000:.0f}ms",
        "idle_in_transaction_session_timeout": f"{lease.idle_in_transaction_s * 1000:.0f}ms",
        "jit": "off",
    }


@asynccontextmanager
async def open_database(
    url: str, *, pool_size: int, application_name: str, lease: LeaseTiming | None = None
) -> AsyncGenerator["Database"]:
    """A database that connects on first use; `url` is `postgresql://role:password@host:port/name`."""
    # Poolers such as PgBouncer refuse most settings in the first message of a connection, so a statement makes them.
    settings = ", ".join(
        f"set_config('{k}', '{v}', false)" for k, v in build_session_settings(lease or LeaseTiming()).items()
    )
    statement = f"SELECT {settings}"

    async def prepare(connection: Any) -> None:
        try:
            await connection.execute(statement)
        except BaseException:
            # The driver would wait until the server has confirmed the cancellation, and the caller with it.
            connection.terminate()
            raise

    created = asyncpg.create_pool(  # pyright: ignore[reportUnknownMemberType] it has no types
        url,
        min_size=0,
        max_size=pool_size,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=COMMAND_TIMEOUT_S,
        init=prepare,
        reset=_keep_session,
        server_settings={"application_name": application_name},
    )
    pool: Any = await created
    try:
        yield Database(pool)
    finally:
        await _close(pool)


class Connection:
    """A connection of asyncpg, which has no types, as repositories use it. SQL is a LiteralString, so none is built
    from values. Statements get a short grace period when their caller is cancelled."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def fetch(self, query: LiteralString, *args: object) -> Sequence[Row]:
        return await self._run(self._inner.fetch(query, *args))

    async def fetchrow(
        self,
        query: LiteralString,
        *args: object,
        timeout: float | None = None,  # noqa: ASYNC109 - the driver's own limit, which this replaces
    ) -> Row | None:
        """`timeout` in seconds, if COMMAND_TIMEOUT_S is too short."""
        return await self._run(self._inner.fetchrow(query, *args, timeout=timeout))

    async def fetchval(self, query: LiteralString, *args: object) -> Any:
        return await self._run(self._inner.fetchval(query, *args))

    async def execute(self, query: LiteralString, *args: object) -> str:
        return await self._run(self._inner.execute(query, *args))

    async def executemany(self, command: LiteralString, args: Sequence[Sequence[object]]) -> None:
        await self._run(self._inner.executemany(command, args))

    def terminate(self) -> None:
        self._inner.terminate()

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._inner.transaction()

    async def roll_back(self) -> None:
        """End a transaction that failed. If that is impossible, the connection is closed, which ends it too."""
        try:
            if not self._inner.is_closed() and self._inner.is_in_transaction():
                await self.execute("ROLLBACK")
        finally:
            if not self._inner.is_closed() and self._inner.is_in_transaction():
                self._inner.terminate()

    async def _run(self, statement: Coroutine[Any, Any, T]) -> T:
        running = asyncio.ensure_future(statement)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await self._end(running)
            raise

    async def _end(self, running: asyncio.Future[Any]) -> None:
        """Returns when the statement has ended, even if the caller is cancelled again, because a connection runs one
        statement at a time. A statement that ignores its cancellation loses its connection."""
        try:
            await asyncio.wait({running}, timeout=CANCEL_GRACE_S)
        finally:
            running.cancel()
            deadline = asyncio.get_running_loop().time() + END_TIMEOUT_S
            while not running.done() and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({running}, timeout=left_s)
            if not running.done():
                _log.error("Closed the connection of a cancelled statement that did not end", timeout_s=END_TIMEOUT_S)
                self._inner.terminate()
            elif not running.cancelled():
                # Retrieved, so that asyncio does not log it: the caller gets its cancellation.
                running.exception()


class Database:
    """Provides connections and transactions. All its errors are ours: Unavailable if a retry can succeed, DatabaseFault
    for a statement that the server rejects for a reason without an own class."""

    def __init__(self, pool: Any, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._monotonic = monotonic
        self._disk_full: tuple[float, str] | None = None
        """When a statement last failed for lack of disk space, by the monotonic clock, and the server's message."""

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A connection without a principal: row-level security hides all rows, only functions work."""
        # A rollback on a connection that has just broken fails; its error must not replace the cancellation that caused
        # it.
        with keep_cancellation(), translated(), self._noting_full_disk():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                yield Connection(connection)

    @asynccontextmanager
    async def transaction(
        self, principal: Principal, *, isolation: Literal["repeatable_read"] | None = None, readonly: bool = False
    ) -> AsyncGenerator[Connection]:
        """One transaction that sees only the principal's rows; commits at the end, rolls back on any exception.

        It begins and names its principal in one round trip, which the driver's own transaction can't.
        """
        async with self.connection() as connection:
            try:
                await connection.execute(_build_begin(principal, isolation, readonly))
                yield connection
            except BaseException:
                await connection.roll_back()
                raise
            # A transaction in which a statement failed is rolled back, even if its error was caught.
            if (done := await connection.execute("COMMIT")) != "COMMIT":
                raise DatabaseFault(f"The transaction ended with {done}, because a statement of it had failed.")

    async def check(self) -> None:
        """Raise Unavailable when the database does not answer."""
        async with self.connection() as connection:
            await connection.fetchval("SELECT 1")

    @contextmanager
    def _noting_full_disk(self) -> Generator[None]:
        try:
            yield
        except (asyncpg.DiskFullError, Unavailable) as error:
            full = error.__cause__ if isinstance(error, Unavailable) else error
            if isinstance(full, asyncpg.DiskFullError):
                DISK_FULL.labels("postgres_disk").inc()
                if not self._is_disk_full():
                    _log.error("The disk of Postgres is full", error=str(full))
                self._disk_full = self._monotonic(), str(full)
            raise

    def _is_disk_full(self) -> bool:
        return self._disk_full is not None and self._monotonic() < self._disk_full[0] + DISK_FULL_KEPT_S

    async def check_disk(self) -> None:
        """Raise Unavailable when the server recently had no disk space for a statement of this process.

        Only writes detect it: a full server still answers `check`.
        """
        if self._disk_full and self._is_disk_full():
            raise Unavailable(f"Postgres: {self._disk_full[1]}")


def _build_begin(principal: Principal, isolation: Literal["repeatable_read"] | None, readonly: bool) -> LiteralString:
    """Statements that begin a transaction which runs as this principal until its end.

    Statements with parameters can't be sent together, so the values are part of the text, in hexadecimal: it can't
    contain SQL.
    """
    begin = "BEGIN" + (" ISOLATION LEVEL REPEATABLE READ" if isolation else "") + (" READ ONLY" if readonly else "")
    values = {"tenant": principal.tenant, "project": principal.project, "user_id": principal.user_id}
    settings = ", ".join(
        f"set_config('app.{name}', convert_from('\\x{value.encode().hex()}', 'UTF8'), true)"
        for name, value in values.items()
    )
    return cast(LiteralString, f"{begin}; SELECT {settings}")


@contextmanager
def translated() -> Generator[None]:
    """Translates the driver's errors to ours; use it again inside a transaction to distinguish the errors of one
    statement."""
    try:
        yield
    except asyncpg.PostgresError as error:
        raise _translate(error) from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError) as error:
        raise Unavailable(f"Postgres: {error or type(error).__name__}") from error


def _translate(error: asyncpg.PostgresError) -> EverturnError:
    code = str(getattr(error, "sqlstate", ""))
    if code == STALE_FENCE:
        return StaleFence(str(error))
    if code == OUT_OF_ORDER:
        return OutOfOrder(str(error))
    if code == NOT_RUNNING:
        return Conflict(str(error))
    if code == "55P03":
        return LockTimeout()
    if code in ("22021", "22P05") or isinstance(error.__cause__, UnicodeEncodeError):
        return Invalid("A text contains a character that can't be stored, such as U+0000.")
    if code in _OTHER_SCHEMA and not isinstance(error, asyncpg.InvalidCachedStatementError):
        return SchemaDiffers(str(error))
    if code.startswith(_TRANSIENT) or isinstance(error, asyncpg.InvalidCachedStatementError):
        return Unavailable(f"Postgres: {error}")
    return DatabaseFault(f"{code}: {error}")


async def _close(pool: Any) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def _keep_session(_: object) -> None:
    """Our sessions keep no state beyond a transaction, so releasing a connection needs no round trip."""


def replace_nul(text: str) -> str:
    """A text that is only displayed, such as a title: U+0000, which Postgres can't store, becomes U+FFFD."""
    return text.replace("\x00", "\ufffd")
