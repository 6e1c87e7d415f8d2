"""One client's frames: order, size, number, rate."""

from ingress.errors import unavailable
from ingress.sockets.framing import BadFrame, Opening, Packet, parse_packet
from ingress.sockets.guard import (
    LARGE_BYTES,
    MAX_JOIN_CHARS,
    MAX_OPEN_CALLS,
    MAX_REFUSED,
    Close,
    Drop,
    Keep,
    Pass,
    Phase,
    Refuse,
    RefuseJoin,
    SocketCaps,
    SocketGuard,
    Verdict,
)

CALL = '421["m",{}]'
UPLOAD = '451-1["m",{"_placeholder":true,"num":0}]'


class Now:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def build_guard(
    now: Now | None = None, *, joined: bool = True, message_bytes: int = 1000, files: int = 2
) -> SocketGuard:
    guard = SocketGuard(SocketCaps(message_bytes, message_bytes, files, 10, frozenset({"m"})), now or Now())
    if joined:
        guard.phase = Phase.JOINED
    return guard


def judge(guard: SocketGuard, frame: str | bytes) -> Verdict:
    """The whole way of a frame whose call may be read."""
    size = len(frame.encode() if isinstance(frame, str) else frame)
    begun = guard.begin(frame, size)
    return guard.judge(begun, _parse(str(frame)), size) if isinstance(begun, Opening) else begun


def _parse(frame: str) -> Packet | BadFrame:
    try:
        return parse_packet(frame)
    except BadFrame as error:
        return error


def upload(count: int, ack: int = 1) -> str:
    places = ",".join(f'{{"_placeholder":true,"num":{n}}}' for n in range(count))
    return f'45{count}-{ack}["m",{places}]'


def status_of(verdict: object) -> int:
    assert isinstance(verdict, Refuse), verdict
    return verdict.why.answer.status


def cause_of(verdict: object) -> str:
    assert isinstance(verdict, Close), verdict
    return verdict.reason


def test_a_client_joins_once_and_then_calls() -> None:
    guard = build_guard(joined=False)

    assert cause_of(judge(build_guard(joined=False), CALL)) == "malformed"
    assert judge(guard, "40{}") == Pass()
    assert cause_of(judge(guard, "40{}")) == "malformed"
    guard.phase = Phase.JOINED
    assert judge(guard, CALL) == Pass("m", len(CALL), acked=True)


def test_other_namespaces_are_refused_and_the_socket_stays() -> None:
    guard = build_guard(joined=False)

    verdict = judge(guard, "40/admin,{}")

    assert isinstance(verdict, RefuseJoin)
    assert verdict.namespace == "/admin"
    assert judge(guard, "40{}") == Pass()


def test_nothing_large_comes_before_the_client_is_known() -> None:
    assert cause_of(judge(build_guard(joined=False), "40" + "x" * MAX_JOIN_CHARS)) == "oversized"


def test_what_is_no_call_is_never_large_and_is_not_read_before_its_token_is_taken() -> None:
    large = '40/admin,{"x":"' + "x" * MAX_JOIN_CHARS + '"}'
    assert cause_of(judge(build_guard(message_bytes=10**6), large)) == "oversized"
    guard = build_guard()

    told = [judge(guard, "40/admin,{}") for _ in range(30)]

    assert all(isinstance(verdict, RefuseJoin) for verdict in told)
    assert status_of(judge(guard, "40/admin,{")) == 429


def test_an_upload_is_whole_with_its_last_attachment() -> None:
    guard = build_guard()

    assert judge(guard, upload(2)) == Keep()
    assert judge(guard, b"a") == Keep()
    assert guard.waits
    assert judge(guard, b"b") == Pass("m", len(upload(2)) + 2, acked=True)


def test_a_packet_out_of_its_place_ends_the_socket() -> None:
    guard = build_guard()

    assert cause_of(judge(build_guard(), b"a")) == "malformed"
    judge(guard, upload(1))
    assert cause_of(judge(guard, CALL)) == "malformed"


def test_attachments_above_the_cap_are_dropped_one_by_one() -> None:
    guard = build_guard(files=2)

    assert status_of(judge(guard, upload(3))) == 413
    assert [judge(guard, b"x") for _ in range(3)] == [Drop()] * 3
    assert isinstance(judge(guard, CALL), Pass)


def test_a_packet_that_announces_thousands_of_attachments_ends_the_socket() -> None:
    assert cause_of(judge(build_guard(), upload(101))) == "oversized"


def test_attachments_that_grow_too_large_in_total_end_the_socket() -> None:
    guard = build_guard(message_bytes=100)

    judge(guard, UPLOAD)

    assert cause_of(judge(guard, bytes(100))) == "oversized"


def test_a_text_above_the_cap_is_answered() -> None:
    assert status_of(judge(build_guard(message_bytes=50), f'421["m","{"x" * 50}"]')) == 413


def test_an_unknown_event_is_absent() -> None:
    assert status_of(judge(build_guard(), '421["other"]')) == 404


def test_calls_above_the_rate_are_refused_until_time_has_passed() -> None:
    now = Now()
    guard = build_guard(now)

    for _ in range(30):
        assert isinstance(judge(guard, "3"), Pass)
    assert status_of(judge(guard, CALL)) == 429
    now.at += 0.1

    assert isinstance(judge(guard, CALL), Pass)


def test_a_flood_ends_the_socket() -> None:
    guard = build_guard()

    verdicts = [judge(guard, "3") for _ in range(30 + MAX_REFUSED + 1)]

    assert [type(verdict) for verdict in verdicts[:-1]] == [Pass] * 30 + [Refuse] * MAX_REFUSED
    assert cause_of(verdicts[-1]) == "flood"


def test_only_so_many_answers_may_wait_to_be_read() -> None:
    guard = build_guard()

    for _ in range(MAX_OPEN_CALLS):
        assert isinstance(judge(guard, CALL), Pass)

    assert status_of(judge(guard, CALL)) == 429
    guard.open_calls -= 1
    assert isinstance(judge(guard, CALL), Pass)


def test_calls_that_nobody_waits_for_are_open_calls_too() -> None:
    guard = build_guard()

    for _ in range(MAX_OPEN_CALLS):
        assert judge(guard, '42["m",{}]') == Pass("m", len(CALL) - 1)

    assert status_of(judge(guard, CALL)) == 429


def test_beside_a_large_message_there_is_no_other_call() -> None:
    guard = build_guard(message_bytes=10 * LARGE_BYTES)
    judge(guard, UPLOAD)
    whole = judge(guard, bytes(LARGE_BYTES))

    assert isinstance(whole, Pass)
    assert status_of(judge(guard, CALL)) == 429
    guard.open_bytes -= whole.size
    assert isinstance(judge(guard, CALL), Pass)


def test_malformed_packets_and_leaving_end_the_socket() -> None:
    assert cause_of(judge(build_guard(), "x")) == "malformed"
    assert cause_of(judge(build_guard(), "41")) == "left"


def test_a_call_that_cannot_be_read_is_answered_and_its_attachments_are_dropped() -> None:
    guard = build_guard()

    refused = judge(guard, '452-7["m",{"text":"\\u0000"}]')

    assert isinstance(refused, Refuse)
    assert (refused.ack, status_of(refused)) == (7, 400)
    assert "U+0000" in str(refused.why.answer.detail)
    assert [judge(guard, b"x") for _ in range(2)] == [Drop()] * 2
    assert status_of(judge(guard, "421[")) == 400
    assert guard.open_calls == 0
    assert isinstance(judge(guard, CALL), Pass)


def test_a_connection_that_cannot_be_read_is_refused_and_may_be_asked_for_again() -> None:
    guard = build_guard(joined=False)

    refused = judge(guard, '40{"token":"\\ud800"}')

    assert isinstance(refused, RefuseJoin)
    assert (refused.namespace, refused.why.answer.status) == ("/", 400)
    assert judge(guard, "40{}") == Pass()


def test_a_client_that_asks_for_namespaces_for_ever_is_let_go() -> None:
    guard = build_guard(joined=False)

    verdicts = [judge(guard, "40/x,") for _ in range(30 + MAX_REFUSED + 1)]

    assert {type(verdict) for verdict in verdicts[:30]} == {RefuseJoin}
    assert cause_of(verdicts[-1]) == "flood"


def test_a_call_is_refused_before_its_data_are_read() -> None:
    guard = build_guard()

    begun = guard.begin('427["m",{"not": JSON', 20)

    assert begun == Opening("m", 7, 0)
    assert isinstance(begun, Opening)
    assert status_of(guard.refuse(begun, unavailable("no"))) == 503


def test_the_name_of_a_call_is_known_early_only_where_it_is_written_plainly() -> None:
    guard = build_guard()

    assert guard.begin('427[ "m"]', 9) == Opening(None, 7, 0)
    assert guard.begin('427["\\u006d"]', 9) == Opening(None, 7, 0)
    assert isinstance(judge(guard, '427[ "m"]'), Pass)
    assert status_of(judge(guard, '427[ "other"]')) == 404


def test_a_message_without_room_is_answered_and_the_socket_goes_on() -> None:
    guard = build_guard()

    assert status_of(guard.turn_away('427["m",{"text":"beg', unavailable("no room"))) == 503
    assert isinstance(judge(guard, CALL), Pass)


def test_an_attachment_without_room_refuses_its_call_and_the_rest_is_dropped() -> None:
    guard = build_guard()
    judge(guard, upload(2))
    before = guard.open_calls

    refused = guard.turn_away(b"start", unavailable("no room"))

    assert status_of(refused) == 503
    assert isinstance(refused, Refuse)
    assert refused.ack == 1
    assert guard.open_calls == before - 1
    assert judge(guard, b"second") == Drop()
    assert status_of(guard.turn_away(upload(1), unavailable("no room"))) == 503
    assert guard.turn_away(b"its attachment", unavailable("no room")) == Drop()
    assert isinstance(judge(guard, CALL), Pass)
