"""One client's frames: order, size, number, rate."""

from ingress.sockets.guard import (
    LARGE_BYTES,
    MAX_JOIN_CHARS,
    MAX_OPEN_CALLS,
    MAX_REFUSED,
    Close,
    Drop,
    Pass,
    Phase,
    Refuse,
    RefuseJoin,
    SocketCaps,
    SocketGuard,
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
    guard = SocketGuard(SocketCaps(message_bytes, files, 10, frozenset({"m"})), now or Now())
    if joined:
        guard.phase = Phase.JOINED
    return guard


def upload(count: int, ack: int = 1) -> str:
    places = ",".join(f'{{"_placeholder":true,"num":{n}}}' for n in range(count))
    return f'45{count}-{ack}["m",{places}]'


def status_of(verdict: object) -> int:
    assert isinstance(verdict, Refuse), verdict
    return verdict.why.answer.status


def cause_of(verdict: object) -> str:
    assert isinstance(verdict, Close), verdict
    return verdict.cause


def test_a_client_joins_once_and_then_calls() -> None:
    guard = build_guard(joined=False)

    assert cause_of(build_guard(joined=False).judge(CALL)) == "malformed"
    assert guard.judge("40{}") == Pass()
    assert cause_of(guard.judge("40{}")) == "malformed"
    guard.phase = Phase.JOINED
    assert guard.judge(CALL) == Pass("m", len(CALL))


def test_other_namespaces_are_refused_and_the_socket_stays() -> None:
    guard = build_guard(joined=False)

    verdict = guard.judge("40/admin,{}")

    assert isinstance(verdict, RefuseJoin)
    assert verdict.namespace == "/admin"
    assert guard.judge("40{}") == Pass()


def test_nothing_large_comes_before_the_client_is_known() -> None:
    assert cause_of(build_guard(joined=False).judge("40" + "x" * MAX_JOIN_CHARS)) == "oversized"


def test_an_upload_is_whole_with_its_last_attachment() -> None:
    guard = build_guard()

    assert guard.judge(upload(2)) == Pass()
    assert guard.judge(b"a") == Pass()
    assert guard.judge(b"b") == Pass("m", len(upload(2)) + 2)


def test_a_packet_out_of_its_place_ends_the_socket() -> None:
    guard = build_guard()

    assert cause_of(build_guard().judge(b"a")) == "malformed"
    guard.judge(upload(1))
    assert cause_of(guard.judge(CALL)) == "malformed"


def test_attachments_above_the_cap_are_dropped_one_by_one() -> None:
    guard = build_guard(files=2)

    assert status_of(guard.judge(upload(3))) == 413
    assert [guard.judge(b"x") for _ in range(3)] == [Drop()] * 3
    assert isinstance(guard.judge(CALL), Pass)


def test_a_packet_that_announces_thousands_of_attachments_ends_the_socket() -> None:
    assert cause_of(build_guard().judge(upload(101))) == "oversized"


def test_attachments_that_grow_too_large_in_total_end_the_socket() -> None:
    guard = build_guard(message_bytes=100)

    guard.judge(UPLOAD)

    assert cause_of(guard.judge(bytes(100))) == "oversized"


def test_a_text_above_the_cap_is_answered() -> None:
    assert status_of(build_guard(message_bytes=50).judge(f'421["m","{"x" * 50}"]')) == 413


def test_an_unknown_event_is_absent() -> None:
    assert status_of(build_guard().judge('421["other"]')) == 404


def test_calls_above_the_rate_are_refused_until_time_has_passed() -> None:
    now = Now()
    guard = build_guard(now)

    for _ in range(30):
        assert isinstance(guard.judge("3"), Pass)
    assert status_of(guard.judge(CALL)) == 429
    now.at += 0.1

    assert isinstance(guard.judge(CALL), Pass)


def test_a_flood_ends_the_socket() -> None:
    guard = build_guard()

    verdicts = [guard.judge("3") for _ in range(30 + MAX_REFUSED + 1)]

    assert [type(verdict) for verdict in verdicts[:-1]] == [Pass] * 30 + [Refuse] * MAX_REFUSED
    assert cause_of(verdicts[-1]) == "flood"


def test_only_so_many_answers_may_wait_to_be_read() -> None:
    guard = build_guard()

    for _ in range(MAX_OPEN_CALLS):
        assert isinstance(guard.judge(CALL), Pass)

    assert status_of(guard.judge(CALL)) == 429
    guard.open_calls -= 1
    assert isinstance(guard.judge(CALL), Pass)


def test_beside_a_large_message_there_is_no_other_call() -> None:
    guard = build_guard(message_bytes=10 * LARGE_BYTES)
    guard.judge(UPLOAD)
    whole = guard.judge(bytes(LARGE_BYTES))

    assert isinstance(whole, Pass)
    assert status_of(guard.judge(CALL)) == 429
    guard.open_bytes -= whole.size
    assert isinstance(guard.judge(CALL), Pass)


def test_malformed_packets_and_leaving_end_the_socket() -> None:
    assert cause_of(build_guard().judge("x")) == "malformed"
    assert cause_of(build_guard().judge("41")) == "left"
    close = build_guard().judge('42["m",{"' + "ä" * 300 + '":1,"' + "ä" * 300 + '":1}]')
    assert isinstance(close, Close)
    assert len(close.reason.encode()) <= 123
