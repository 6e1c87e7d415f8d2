"""A client's sequence is gapless, or a snapshot comes first."""

import re

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.stream import EncodedEvent, Entry
from ingress.stream.frames import REWIND, Batch, ClientCursor, EntryOrder, Phase, build_batch


def at(n: int, fence: int = 1) -> EventCursor:
    return EventCursor(fence, n)


def batch(prev: EventCursor, *ids: EventCursor, kind: str = "chat.delta") -> Batch:
    return build_batch(Entry(prev, tuple(EncodedEvent(each, kind, b"{}") for each in ids)))


def ids_in(frames: bytes) -> list[str]:
    return re.findall(r"^id: (.*)$", frames.decode(), re.MULTILINE)


def live_at(cursor: EventCursor, *, max_bytes: int = 10_000, piece_bytes: int = 10_000) -> ClientCursor:
    client = ClientCursor(cursor, max_bytes=max_bytes, piece_bytes=piece_bytes)
    client.reach_end(cursor, found_any=False)
    return client


def test_a_live_client_gets_entries_joined_into_one_chunk() -> None:
    client = live_at(at(1))

    client.offer(batch(at(1), at(2), at(3)))
    client.offer(batch(at(3), at(4)))

    assert ids_in(client.take()) == ["1-2", "1-3", "1-4"]
    assert client.taken == at(4)
    assert client.take() == b""


def test_an_entry_that_was_seen_already_is_not_sent_again() -> None:
    client = live_at(at(3))

    client.offer(batch(at(1), at(2), at(3)))

    assert client.take() == b""
    assert client.phase is Phase.LIVE


def test_a_client_in_the_middle_of_an_entry_gets_its_rest() -> None:
    client = live_at(at(2))

    client.offer(batch(at(1), at(2), at(3)))

    assert ids_in(client.take()) == ["1-3"]


def test_a_hole_in_the_chain_drops_what_waits_and_asks_for_a_snapshot() -> None:
    client = live_at(at(1))
    client.offer(batch(at(1), at(2)))

    client.offer(batch(at(3), at(4)))

    assert client.phase is Phase.LOST
    assert client.loss == "gap"
    assert client.take() == b""
    assert client.taken == at(1)


def test_a_slow_client_is_lost_at_its_bound_until_its_next_snapshot() -> None:
    client = live_at(at(1), max_bytes=100)
    n = 1
    while client.phase is Phase.LIVE:
        client.offer(batch(at(n), at(n + 1)))
        n += 1

    client.offer(batch(at(n), at(n + 1)))

    assert client.loss == "slow"
    assert client.waiting_bytes == 0
    client.rebase(at(n), b"snapshot\n\n")
    client.feed(batch(at(n), at(n + 1)))
    assert client.take().startswith(b"snapshot")
    assert client.taken == at(n + 1)


def test_a_client_that_never_reads_its_piece_is_lost_at_its_bound() -> None:
    client = live_at(at(1), max_bytes=1000)
    client.offer(batch(at(1), at(2)))
    size = client.waiting_bytes
    for n in range(2, 9):
        client.offer(batch(at(n), at(n + 1)))
    in_hand = len(client.take())

    n, held = 9, 0
    while client.phase is Phase.LIVE:
        held = max(held, in_hand + client.waiting_bytes)
        client.offer(batch(at(n), at(n + 1)))
        n += 1

    assert in_hand >= 8 * size
    assert 1000 - 2 * size < held <= 1000


def test_a_sent_snapshot_does_not_count_against_the_bound() -> None:
    client = ClientCursor(None, max_bytes=100)
    client.rebase(at(1), b"snapshot" * 50)
    client.take()
    client.release_piece()
    client.reach_end(at(1), found_any=False)

    client.offer_hint(b"hint")

    assert (client.phase, client.take()) == (Phase.LIVE, b"hint")


def test_catching_up_does_not_count_against_the_bound() -> None:
    size = len(batch(at(1), at(2)).joined)
    client = ClientCursor(at(1), max_bytes=10 * size, piece_bytes=2 * size)
    for n in range(1, 40):
        client.feed(batch(at(n), at(n + 1)))
    client.reach_end(at(40), found_any=True)
    client.offer(batch(at(40), at(41)))

    caught_up = ids_in(client.take())
    for n in range(41, 46):
        client.offer(batch(at(n), at(n + 1)))

    assert (len(caught_up), client.phase) == (39, Phase.LIVE)
    for n in range(46, 60):
        client.offer(batch(at(n), at(n + 1)))
    assert client.phase is Phase.LOST


def test_large_frames_are_read_in_pieces_with_their_positions() -> None:
    client = live_at(at(1), max_bytes=10_000, piece_bytes=3 * len(batch(at(1), at(2)).joined))
    for n in range(1, 6):
        client.offer(batch(at(n), at(n + 1)))

    pieces: list[tuple[list[str], EventCursor | None]] = []
    while piece := client.take():
        pieces.append((ids_in(piece), client.taken))

    assert pieces == [(["1-2", "1-3", "1-4"], at(4)), (["1-5", "1-6"], at(6))]
    client.offer(batch(at(6), at(7)))
    client.offer(batch(at(7), at(8)))
    client.take()
    client.offer(batch(at(9), at(10)))
    assert (client.phase, client.at) == (Phase.LOST, client.taken)


def test_one_entry_above_the_bound_is_still_sent_when_nothing_waits() -> None:
    client = live_at(at(1), max_bytes=10)

    client.offer(batch(at(1), at(2)))

    assert ids_in(client.take()) == ["1-2"]


def test_behind_a_fresh_snapshot_an_entry_whose_prev_it_covers_fits() -> None:
    client = ClientCursor(None, max_bytes=1000)
    client.rebase(at(10), b"s")

    assert client.classify(batch(at(7), at(11))) is EntryOrder.NEXT
    assert client.classify(batch(at(11), at(12))) is EntryOrder.AFTER_GAP


def test_behind_a_fresh_snapshot_a_rewind_fits_whatever_was_lost_before_it() -> None:
    client = ClientCursor(None, max_bytes=1000)
    client.rebase(at(10), b"s")

    client.feed(batch(at(20), at(1, fence=2), kind=REWIND))

    assert client.phase is Phase.BEHIND
    assert client.at == at(1, fence=2)
    assert not client.fresh


def test_without_a_fresh_snapshot_a_rewind_behind_a_hole_does_not_fit() -> None:
    client = live_at(at(10))

    client.offer(batch(at(20), at(1, fence=2), kind=REWIND))

    assert client.phase is Phase.LOST


def test_an_entry_that_skips_events_of_a_zombie_requires_a_snapshot() -> None:
    client = live_at(at(5))

    client.offer(batch(at(3), at(1, fence=2)))

    assert client.phase is Phase.LOST


def test_a_client_before_the_first_event_gets_all_events_or_a_snapshot() -> None:
    whole, trimmed = (ClientCursor(ORIGIN, max_bytes=1000) for _ in range(2))

    whole.feed(batch(ORIGIN, at(1), at(2)))
    trimmed.feed(batch(at(40), at(41)))

    assert ids_in(whole.take()) == ["1-1", "1-2"]
    assert (trimmed.phase, trimmed.loss) == (Phase.LOST, "gap")


def test_a_stream_that_lost_what_a_client_needs_asks_for_a_snapshot() -> None:
    client = ClientCursor(at(3), max_bytes=1000)

    client.reach_end(at(9), found_any=False)

    assert client.phase is Phase.LOST
    assert client.loss == "stream_lost"


def test_a_fresh_snapshot_of_an_emptied_stream_goes_live() -> None:
    client = ClientCursor(None, max_bytes=1000)
    client.rebase(at(3), b"s")

    client.reach_end(at(9), found_any=False)

    assert client.phase is Phase.LIVE


def test_a_client_that_read_less_than_the_reader_knows_reads_on() -> None:
    client = ClientCursor(at(3), max_bytes=1000)
    client.feed(batch(at(3), at(4)))

    client.reach_end(at(9), found_any=True)

    assert client.phase is Phase.BEHIND


def test_hints_wait_until_the_client_is_live_and_then_the_row_is_read() -> None:
    client = ClientCursor(None, max_bytes=1000)
    client.rebase(at(3), b"s")
    client.offer_hint(b"hint")

    client.reach_end(at(3), found_any=False)

    assert client.stale_hints
    assert client.take() == b"s"
    client.offer_hint(b"hint")
    assert client.take() == b"hint"


def test_a_client_that_resumes_reads_the_row_once_it_is_live() -> None:
    assert ClientCursor(at(3), max_bytes=1000).stale_hints
    assert not ClientCursor(None, max_bytes=1000).stale_hints


def test_dropped_frames_still_move_the_cursor() -> None:
    client = live_at(at(1))
    second_end = Entry(at(1), (EncodedEvent(at(2), "chat.complete", b"{}"),))

    client.offer(build_batch(second_end, frozenset({at(2)})))
    client.offer(batch(at(2), at(3)))

    assert ids_in(client.take()) == ["1-3"]


class StreamWorld(RuleBasedStateMachine):
    """A writer, a buffer that is trimmed and emptied, a reader that misses entries, and one client."""

    def __init__(self) -> None:
        super().__init__()
        self.truth: list[EventCursor] = []
        self.buffer: list[Batch] = []
        self.committed = ORIGIN
        self.reader_at = ORIGIN
        self.client = ClientCursor(None, max_bytes=150)
        self.known: list[EventCursor] = []
        self.place: EventCursor | None = None

    def last(self) -> EventCursor:
        return self.truth[-1] if self.truth else ORIGIN

    @rule(count=st.integers(1, 4), seen=st.booleans(), stored=st.booleans(), takeover=st.booleans())
    def publish(self, count: int, seen: bool, stored: bool, takeover: bool) -> None:
        prev = self.last()
        fence = max(1, prev.fence + (1 if takeover else 0))
        first_n = prev.n + 1 if prev.fence == fence else 1
        ids = [EventCursor(fence, first_n + step) for step in range(count)]
        self.truth += ids
        entry = batch(prev, *ids)
        if stored:
            self.buffer.append(entry)
        if stored and seen:
            self.reader_at = entry.last
            self.client.offer(entry)

    @rule()
    def reader_recovers(self) -> None:
        self.reader_at = self.last()
        self.client.lose("outage")

    @rule()
    def commit(self) -> None:
        self.committed = self.last()

    @rule(keep=st.integers(0, 3))
    def trim(self, keep: int) -> None:
        self.buffer = self.buffer[len(self.buffer) - keep :] if keep else []

    @precondition(lambda self: self.client.phase is Phase.LOST)
    @rule()
    def rebase(self) -> None:
        self.client.rebase(self.committed, f"id: snapshot {self.committed}\n\n".encode())

    @precondition(lambda self: self.client.phase is Phase.BEHIND)
    @rule(page=st.integers(1, 3))
    def catch_up(self, page: int) -> None:
        found = [entry for entry in self.buffer if entry.last > self.client.at][:page]
        for entry in found:
            self.client.feed(entry)
        if len(found) < page:
            self.client.reach_end(self.reader_at, found_any=bool(found))

    @rule()
    def take(self) -> None:
        for item in ids_in(self.client.take()):
            if item.startswith("snapshot"):
                cursor = _parse(item.removeprefix("snapshot "))
                self.known = [each for each in self.truth if each <= cursor]
                self.place = cursor
            else:
                self.place = _parse(item)
                self.known.append(self.place)

    @rule(resume=st.booleans())
    def reconnect(self, resume: bool) -> None:
        if not resume:
            self.place, self.known = None, []
        self.client = ClientCursor(self.place, max_bytes=150, piece_bytes=40)

    @invariant()
    def what_the_client_knows_has_no_hole(self) -> None:
        if self.known:
            assert self.known == [each for each in self.truth if each <= self.known[-1]]

    def take_all(self) -> None:
        while self.client.waiting_bytes:
            self.take()

    def teardown(self) -> None:
        self.publish(1, seen=True, stored=True, takeover=False)
        self.commit()
        for _ in range(50):
            if self.client.phase is Phase.LOST:
                self.rebase()
            if self.client.phase is Phase.BEHIND:
                self.catch_up(2)
        self.take_all()
        self.publish(1, seen=True, stored=True, takeover=False)
        if self.client.phase is Phase.LOST:
            self.commit()
            self.rebase()
        self.take_all()
        assert self.client.phase is not Phase.LOST
        assert self.known == self.truth


def _parse(text: str) -> EventCursor:
    fence, _, n = text.partition("-")
    return EventCursor(int(fence), int(n))


TestStreamWorld = StreamWorld.TestCase
TestStreamWorld.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


def said(cursor: EventCursor, prev: EventCursor, ts: str) -> Batch:
    payload = f'{{"id":"x","type":"chat.delta","ts":"{ts}","data":{{}}}}'.encode()
    return build_batch(Entry(prev, (EncodedEvent(cursor, "chat.delta", payload),)))


def test_what_a_live_client_takes_says_when_the_oldest_of_it_was_made() -> None:
    client = live_at(at(1))

    client.offer(said(at(2), at(1), "1970-01-01T00:00:05.250Z"))
    client.offer(said(at(3), at(2), "1970-01-01T00:00:09.000Z"))
    client.take()

    assert client.taken_created_at == 5.25
    client.take()
    assert client.taken_created_at is None


def test_missed_or_known_entries_do_not_count_as_lag() -> None:
    client = ClientCursor(at(1), max_bytes=10_000)
    client.feed(said(at(2), at(1), "1970-01-01T00:00:05Z"))
    client.take()
    assert client.taken_created_at is None

    client.reach_end(at(2), found_any=True)
    client.offer(said(at(2), at(1), "1970-01-01T00:00:06Z"))
    client.offer(said(at(3), at(2), "1970-01-01T00:00:07Z"))
    client.take()

    assert client.taken_created_at == 7
