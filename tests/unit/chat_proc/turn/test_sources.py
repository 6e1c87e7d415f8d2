import asyncio

import pytest

from chat_proc.turn.sources import TurnSources, build_image_draft
from everturn.core.errors import NotFound
from everturn.core.ids import SignalId, TurnId
from everturn.timeline.blocks import (
    AttachmentBody,
    BlockDraft,
    BlockType,
    Body,
    CompletionBody,
    SignalBody,
    ToolResultBody,
)
from everturn.timeline.sources import MAX_ROWS, SourceDraft
from everturn_testing.timeline import NOW, build_file

PAGE = SourceDraft("Page", "https://a.example/1", text="whole text")
IMAGE = build_file("turn_1", "plan.png", b"png", mime="image/png")


async def no_text(sid: int) -> str:
    raise NotFound(str(sid))


def draft(kind: BlockType, body: Body) -> BlockDraft:
    return BlockDraft(TurnId("turn_1"), 1, kind, "ar:x", body, NOW)


def test_what_is_claimed_waits_for_the_next_commit() -> None:
    pool = TurnSources((), no_text)

    (row,) = pool.claim([PAGE])
    pending = pool.pending()
    pool.settle(pending)

    assert [change.row for change in pending] == [row] == list(pool.rows)
    assert pool.pending() == ()


def test_what_is_claimed_while_a_commit_is_on_its_way_stays_pending() -> None:
    pool = TurnSources((), no_text)
    pool.claim([PAGE])
    on_its_way = pool.pending()

    pool.claim([SourceDraft("A longer title", PAGE.url), SourceDraft("B", "https://b.example")])
    pool.settle(on_its_way)

    assert [change.row.sid for change in pool.pending()] == [1, 2]


async def test_claims_of_several_tools_at_once_share_numbers() -> None:
    pool = TurnSources((), no_text)

    async def find(name: str) -> list[int]:
        found: list[int] = []
        for n in range(20):
            await asyncio.sleep(0)
            found += [row.sid for row in pool.claim([SourceDraft(name, f"https://a.example/{n}")])]
        return found

    one, other = await asyncio.gather(find("one"), find("other"))

    assert one == other == list(range(1, 21))


async def test_a_text_can_be_read_before_it_is_stored() -> None:
    async def stored(sid: int) -> str:
        return f"stored {sid}"

    pool = TurnSources((), stored)
    pool.claim([PAGE])

    before = await pool.load_text(1)
    pool.settle(pool.pending())

    assert (before, await pool.load_text(1)) == ("whole text", "stored 1")


def test_another_worker_continues_with_the_rows() -> None:
    first = TurnSources((), no_text)
    first.claim([PAGE])

    resumed = TurnSources(first.rows, no_text)
    known, fresh = resumed.claim(
        [SourceDraft("Page", "https://a.example/1#top"), SourceDraft("B", "https://b.example")]
    )

    assert (known.sid, fresh.sid) == (1, 2)


@pytest.mark.parametrize(
    "said",
    [
        draft(BlockType.COMPLETION, CompletionBody(text="[[S:1]]", sources_used=(1, 7))),
        draft(
            BlockType.TOOL_RESULT,
            ToolResultBody(tool_id="react.write", status="ok", text="", data={"sources_used": [1, "x"]}),
        ),
    ],
)
def test_what_an_answer_or_a_file_cites_is_marked_as_used(said: BlockDraft) -> None:
    pool = TurnSources((), no_text)
    pool.claim([PAGE, SourceDraft("B", "https://b.example")])
    pool.settle(pool.pending())

    pool.accept_drafts([said])

    assert [(row.sid, row.used) for row in pool.rows] == [(1, True), (2, False)]
    assert [(change.row.sid, change.text) for change in pool.pending()] == [(1, None)]


def test_images_of_files_get_rows_and_other_files_do_not() -> None:
    pool = TurnSources((), no_text)
    table = build_file("turn_1", "sales.csv", b"a,b", mime="text/csv")
    shown = build_file("turn_1", "more.png", b"more", mime="image/png")

    pool.accept_drafts(
        [
            draft(BlockType.ATTACHMENT_META, AttachmentBody(artifact=IMAGE)),
            draft(BlockType.USER_FOLLOWUP, SignalBody(signal_id=SignalId("s"), text="", attachments=(table, shown))),
            draft(BlockType.TOOL_RESULT, ToolResultBody(tool_id="x", status="ok", text="", artifacts=(IMAGE,))),
        ]
    )

    assert [(row.url, row.source_type, row.is_evidence) for row in pool.rows] == [
        (IMAGE.ref, "attachment", False),
        (shown.ref, "attachment", False),
    ]


def test_a_full_pool_keeps_no_images_and_harms_no_turn() -> None:
    pool = TurnSources((), no_text)
    pool.claim([SourceDraft("p", f"https://a.example/{n}") for n in range(MAX_ROWS)])

    pool.accept_drafts([draft(BlockType.ATTACHMENT_META, AttachmentBody(artifact=IMAGE))])

    assert len(pool.rows) == MAX_ROWS
    assert build_image_draft(IMAGE).url == IMAGE.ref
