"""The rows that streams read."""

import pytest

from everturn.conversations.postgres import PostgresConversations
from everturn.core.clock import SystemClock
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import RandomIds, SignalId
from everturn.events.cursor import ORIGIN
from everturn.postgres.pool import open_database
from everturn.queue.postgres import PostgresQueue
from everturn.timeline.turns import SignalKind
from everturn.turns.inbox import IncomingMessage, IncomingSignal
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_reading import PostgresTurns
from everturn_local.servers.databases import DatabaseUrls
from ingress.stream.rows import Position, StreamRows

ME, OTHER = Principal("t", "p", "me"), Principal("t", "p", "other")
IDS = RandomIds(lambda: 1_767_000_000_000)


async def test_a_streams_rows_are_its_owners(database: DatabaseUrls) -> None:
    async with open_database(database.ingress, pool_size=2, application_name="test") as opened:
        inbox = PostgresInbox(opened)
        rows = StreamRows(
            conversations=PostgresConversations(opened),
            turns=PostgresTurns(opened),
            inbox=inbox,
            queue=PostgresQueue(opened),
            clock=SystemClock(),
        )
        conversation, signal_id = IDS.conversation(), IDS.signal()
        message = IncomingMessage(conversation, True, "hello", (), IDS.turn(), IDS.signal())
        accepted = await inbox.accept_message(ME, message, None)
        await inbox.accept_signal(ME, conversation, IncomingSignal(signal_id, SignalKind.STEER, "stop"), None)

        await rows.check_owner(ME, conversation)
        snapshot = await rows.load_snapshot(ME, conversation)
        head = await rows.load_head(ME, conversation)
        signal = await rows.load_signal(ME, conversation, signal_id)

        assert snapshot.cursor == ORIGIN
        assert await rows.load_position(ME, conversation) == Position(ORIGIN, is_running=False)
        assert snapshot.frame.startswith(b"event: stream_snapshot\n")
        assert b'"text":"hello"' in snapshot.frame
        assert head.frame.startswith(b"event: conv_status\n")
        assert accepted.turn_id.encode() in head.frame
        assert b'"position":0' in head.frame
        assert snapshot.queued and head.queued
        assert head.frame.endswith(signal[signal.index(b'"conversation_id"') :])
        assert b'"position":0' in (await rows.load_status(ME, conversation)).frame
        for read in (rows.check_owner, rows.load_snapshot, rows.load_head, rows.load_status, rows.load_position):
            with pytest.raises(NotFound):
                await read(OTHER, conversation)
        with pytest.raises(NotFound):
            await rows.load_signal(OTHER, conversation, SignalId(signal_id))
