import pytest

from everturn.core.errors import NotFound
from everturn.timeline.sources import SourceDraft
from everturn_testing.source_pool import MemorySourcePool


async def test_a_claimed_source_can_be_read() -> None:
    pool = MemorySourcePool()

    rows = pool.claim([SourceDraft("A", "https://a.example", text="whole"), SourceDraft("B", "https://b.example")])

    assert list(rows) == pool.rows
    assert (await pool.load_text(1), await pool.load_text(2)) == ("whole", "")
    with pytest.raises(NotFound):
        await pool.load_text(3)
