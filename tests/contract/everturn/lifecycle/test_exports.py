"""A conversation is read out page by page, by its owner only."""

import pytest

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.lifecycle import exports as port
from everturn.lifecycle.export_check import ExportWriter, check_export
from everturn.lifecycle.exports import BlockLine, Section, SignalLine
from everturn.lifecycle.postgres_exports import PostgresExports
from everturn.timeline.turns import ExternalEvent, SignalKind
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN, STRANGERS, Harness, closing, commit, think


async def hold_conversation(harness: Harness, *texts: str) -> ConversationId:
    receipt = await harness.say("Hello.", uploads=(harness.upload(),))
    claim = await harness.claim(receipt.conversation_id)
    await harness.signal(receipt.conversation_id, SignalKind.STEER, "shorter")
    await harness.send_event(
        receipt.conversation_id, ExternalEvent("form", {"a": 1}), uploads=(harness.upload("b.csv"),)
    )
    blocks = think(claim, *texts)
    await harness.timelines.commit(claim.lease, commit(claim, blocks))
    await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq + 2, after=blocks))
    return receipt.conversation_id


async def export(exports: PostgresExports, conversation_id: ConversationId) -> tuple[list[bytes], int]:
    """The lines, and how many pages of blocks there were."""
    header = await exports.load_header(ANN, conversation_id)
    writer, last, pages = ExportWriter(), None, 0
    lines = [writer.render(header)]
    while page := await exports.load_blocks(ANN, conversation_id, after=last, last_seq=header.blocks):
        lines += [writer.render(line) for line in page]
        last, pages = page[-1], pages + 1
    for section in Section:
        after = ""
        while (rows := await exports.load_page(ANN, conversation_id, section, after=after)).lines:
            lines += [writer.render(line) for line in rows.lines]
            after = rows.after
    return [*lines, writer.render_end()], pages


async def test_an_export_can_be_verified(roles: Roles, postgres_harness: Harness) -> None:
    conversation_id = await hold_conversation(postgres_harness, "a", "b\x00", "ü\u2028")

    lines, pages = await export(PostgresExports(roles.ingress), conversation_id)

    end = check_export(lines).end
    assert (end.blocks, end.artifacts, end.signals, end.feedback, pages) == (4, 2, 2, 0, 1)


async def test_pages_are_bounded_by_bytes_and_by_rows(roles: Roles, postgres_harness: Harness) -> None:
    long = "x" * (port.PAGE_BYTES // 2 + 1)
    conversation_id = await hold_conversation(postgres_harness, *["y"] * (port.PAGE_ROWS + 5), long, long, long)

    lines, pages = await export(PostgresExports(roles.ingress), conversation_id)

    assert check_export(lines).end.blocks == port.PAGE_ROWS + 9
    assert pages == 3


async def test_signals_keep_what_was_said_with_them(roles: Roles, postgres_harness: Harness) -> None:
    conversation_id = await hold_conversation(postgres_harness, "a")

    page = await PostgresExports(roles.ingress).load_page(ANN, conversation_id, Section.SIGNALS, after="")

    steer, event = page.lines
    assert isinstance(steer, SignalLine)
    assert isinstance(event, SignalLine)
    assert (steer.kind, steer.text) == ("steer", "shorter")
    assert event.event == {"kind": "form", "payload": {"a": 1}, "reactive": True, "iteration_credit": 0}
    assert len(event.attachments) == 1


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_a_stranger_reads_nothing(roles: Roles, postgres_harness: Harness, stranger: Principal) -> None:
    conversation_id = await hold_conversation(postgres_harness, "a")
    exports = PostgresExports(roles.ingress)

    with pytest.raises(NotFound):
        await exports.load_header(stranger, conversation_id)
    blocks: tuple[BlockLine, ...] = await exports.load_blocks(stranger, conversation_id, after=None, last_seq=9)
    pages = [await exports.load_page(stranger, conversation_id, section, after="") for section in Section]

    assert blocks == ()
    assert [page.lines for page in pages] == [(), (), ()]
