"""The published bundles in Postgres."""

from collections.abc import Sequence

from everturn.bundles.registry import (
    BUILT_IN,
    KEPT_DAYS,
    LISTED_S,
    BundleListing,
    StoredBundle,
    read_listing,
    write_listing,
)
from everturn.core.errors import NotFound
from everturn.core.storable import make_storable
from everturn.postgres.pool import Database, Row

_LISTED = """
SELECT DISTINCT ON (id) id, digest, listing, is_default, error, content IS NOT NULL AS is_ready
  FROM bundle
 WHERE seen_at > (SELECT max(seen_at) FROM bundle) - make_interval(secs => $1)
 ORDER BY id, content IS NOT NULL DESC, stored_at DESC, digest
"""
_LOAD = """
SELECT id, digest, manifest, content FROM bundle
 WHERE id = $1 AND ($2::text IS NULL OR digest = $2) AND content IS NOT NULL
 ORDER BY seen_at DESC, stored_at DESC, digest LIMIT 1
"""
_STORE = """
INSERT INTO bundle (id, digest, manifest, content) VALUES ($1, $2, $3, $4)
    ON CONFLICT (id, digest) DO UPDATE SET manifest = $3, content = $4 WHERE bundle.content IS NULL
"""
_STORE_WIDGET_FILE = """
INSERT INTO bundle_widget_file (bundle_id, digest, path, content) VALUES ($1, $2, $3, $4)
    ON CONFLICT (bundle_id, digest, path) DO NOTHING
"""
_LOAD_WIDGET_FILE = "SELECT content FROM bundle_widget_file WHERE bundle_id = $1 AND digest = $2 AND path = $3"
_PUBLISH = """
INSERT INTO bundle (id, digest, listing, is_default, error, seen_at)
SELECT id, digest, listing, is_default, error, clock_timestamp()
  FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::text[])
       AS published (id, digest, listing, is_default, error)
 ORDER BY id, digest
    ON CONFLICT (id, digest) DO UPDATE SET listing = EXCLUDED.listing, is_default = EXCLUDED.is_default,
       error = EXCLUDED.error, seen_at = EXCLUDED.seen_at
"""
_WITHDRAW = """
UPDATE bundle SET seen_at = seen_at - make_interval(secs => $2) WHERE id = ANY($1::text[])
"""
_REMOVE = """
DELETE FROM bundle
 WHERE greatest(seen_at, stored_at) < clock_timestamp() - make_interval(days => $1)
"""


class PostgresBundles:
    """Implements BundleRegistry."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_listed(self) -> tuple[BundleListing, ...]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_LISTED, LISTED_S)
        return tuple(map(_read_listing, rows)) or (BUILT_IN,)

    async def load(self, bundle_id: str, digest: str | None = None) -> StoredBundle:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_LOAD, bundle_id, digest)
        if row is None:
            raise NotFound(bundle_id)
        return StoredBundle(row["id"], row["digest"], row["manifest"], row["content"])

    async def load_widget_file(self, bundle_id: str, digest: str, path: str) -> bytes:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_LOAD_WIDGET_FILE, bundle_id, digest, path)
        if row is None:
            raise NotFound(path)
        return row["content"]

    async def store(self, bundle: StoredBundle) -> None:
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_STORE, bundle.id, bundle.digest, bundle.manifest, bundle.files)
            for path, content in sorted(bundle.widgets.items()):
                await connection.execute(_STORE_WIDGET_FILE, bundle.id, bundle.digest, path, content)

    async def publish(self, listings: Sequence[BundleListing], *, withdrawn: Sequence[str] = ()) -> None:
        columns = (
            [make_storable(listing.id) for listing in listings],
            [listing.digest for listing in listings],
            [write_listing(listing) for listing in listings],
            [listing.is_default for listing in listings],
            [make_storable(listing.error) for listing in listings],
        )
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_PUBLISH, *columns)
            await connection.execute(_WITHDRAW, make_storable(withdrawn), LISTED_S)
            await connection.execute(_REMOVE, KEPT_DAYS)


def _read_listing(row: Row) -> BundleListing:
    return BundleListing(
        id=row["id"],
        digest=row["digest"],
        is_default=row["is_default"],
        is_ready=row["is_ready"],
        error=row["error"],
        **read_listing(row["listing"]),
    )
