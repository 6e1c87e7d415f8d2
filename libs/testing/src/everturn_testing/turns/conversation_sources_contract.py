"""The contract of Timelines about sources as tests; a subclass or its module defines the fixture `harness`."""

from dataclasses import replace

import pytest

from everturn.core.errors import NotFound, StaleFence
from everturn.timeline.sources import SourceDraft, merge_sources
from everturn_testing.turns.harness import STRANGERS, Harness, commit, think


class SourcesContract:
    """Required of every Timelines for a conversation's source pool."""

    async def test_sources_come_back_by_number_without_their_whole_texts(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        where = harness.principal, claim.lease.conversation_id
        found = merge_sources({}, [_page(2, "long " * 500), _page(1)])

        await harness.timelines.commit(
            claim.lease, replace(commit(claim, think(claim, "a")), sources=tuple(reversed(found.changes)))
        )

        assert await harness.timelines.load_sources(*where) == found.rows
        assert await harness.timelines.load_source_text(*where, 1) == "long " * 500
        assert await harness.timelines.load_source_text(*where, 2) == ""
        with pytest.raises(NotFound):
            await harness.timelines.load_source_text(*where, 3)

    async def test_a_changed_source_keeps_its_number_and_text(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        where = harness.principal, claim.lease.conversation_id
        first = think(claim, "a")
        (row,) = merge_sources({}, [_page(1, "whole")]).changes
        await harness.timelines.commit(claim.lease, replace(commit(claim, first), sources=(row,)))

        (better,) = merge_sources({row.row.key: row.row}, [replace(_page(1), title="A longer title")]).changes
        used = replace(better, row=replace(better.row, used=True))
        then = think(claim, "b", after=first)
        await harness.timelines.commit(claim.lease, replace(commit(claim, then), sources=(used,)))

        (stored,) = await harness.timelines.load_sources(*where)
        assert (stored.sid, stored.title, stored.used) == (1, "A longer title", True)
        assert await harness.timelines.load_source_text(*where, 1) == "whole"

    async def test_a_stale_fence_stores_no_source(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.expire_lease(claim.lease.conversation_id)
        await harness.rival.try_claim(claim.lease.conversation_id)

        with pytest.raises(StaleFence):
            zombie = replace(commit(claim, think(claim, "z")), sources=merge_sources({}, [_page(1)]).changes)
            await harness.timelines.commit(claim.lease, zombie)

        assert await harness.timelines.load_sources(harness.principal, claim.lease.conversation_id) == ()

    async def test_nobody_else_sees_a_source(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        found = merge_sources({}, [_page(1, "secret")])
        await harness.timelines.commit(claim.lease, replace(commit(claim, think(claim, "a")), sources=found.changes))

        for stranger in STRANGERS:
            assert await harness.timelines.load_sources(stranger, claim.lease.conversation_id) == ()
            with pytest.raises(NotFound):
                await harness.timelines.load_source_text(stranger, claim.lease.conversation_id, 1)


def _page(n: int, text: str = "") -> SourceDraft:
    return SourceDraft(f"Page {n}", f"https://a.example/{n}", text=text, objective_relevance=0.5, mime="text/html")
