"""An export holds one page at a time, and marks where it stopped."""

import pytest

from everturn.core.errors import NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.lifecycle.export_check import check_export
from everturn.lifecycle.exports import EXPORT_LINE, BlockLine, ExportPage, FeedbackLine, HeaderLine, Section
from everturn_testing.lifecycle.exports import CONVERSATION, build_export
from ingress.lifecycle import ExportService

ANN = Principal("acme", "support", "ann")


class OneRowPages:
    """The export of a small conversation in pages of one row; `fails_at` is the block that can't be read, and from the
    one `erased_at` on, or from the section on, nothing is there any more."""

    def __init__(self, *, fails_at: int | None = None, erased_at: int | Section | None = None) -> None:
        lines = [EXPORT_LINE.validate_json(raw.rpartition(b',"chain"')[0] + b"}") for raw in build_export("a", "b")]
        self._header = next(line for line in lines if isinstance(line, HeaderLine))
        self._blocks = [line for line in lines if isinstance(line, BlockLine)]
        self._feedback = [line for line in lines if isinstance(line, FeedbackLine)]
        self._fails_at = fails_at
        self._erased_at = erased_at
        self._erased = False

    async def load_header(self, principal: Principal, conversation_id: ConversationId) -> HeaderLine:
        assert (principal, conversation_id) == (ANN, CONVERSATION)
        if self._erased:
            raise NotFound(conversation_id)
        return self._header

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, *, after: BlockLine | None, last_seq: int
    ) -> tuple[BlockLine, ...]:
        seq = after.seq if after else 0
        if seq == self._fails_at:
            raise Unavailable("Postgres is away.")
        self._erased = self._erased or seq == self._erased_at
        return () if self._erased else tuple(self._blocks[seq : min(seq + 1, last_seq)])

    async def load_page(
        self, principal: Principal, conversation_id: ConversationId, section: Section, *, after: str
    ) -> ExportPage:
        self._erased = self._erased or section is self._erased_at
        is_there = section is Section.FEEDBACK and not after and not self._erased
        return ExportPage(tuple(self._feedback) if is_there else (), "1")


async def export(exports: OneRowPages) -> list[bytes]:
    service = ExportService(exports)
    header = await service.load_header(ANN, ConversationId(CONVERSATION))
    return [piece async for piece in service.render(ANN, header)]


async def test_pages_become_a_whole_file() -> None:
    pieces = await export(OneRowPages())

    assert check_export(pieces).end.blocks == 6
    assert len(pieces) == 9


async def test_a_database_that_goes_away_ends_the_file_with_a_line_that_says_so() -> None:
    pieces = await export(OneRowPages(fails_at=3))

    assert b'"line":"broken"' in pieces[-1]
    assert b"Postgres" not in pieces[-1]


@pytest.mark.parametrize("erased_at", [0, 2, 5, *Section])
async def test_a_conversation_that_is_erased_meanwhile_does_not_look_whole(erased_at: int | Section) -> None:
    pieces = await export(OneRowPages(erased_at=erased_at))

    assert b'"line":"broken"' in pieces[-1]
    assert b"erased while it was exported" in pieces[-1]
