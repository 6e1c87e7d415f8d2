"""Packets of Socket.IO: client packets are read strictly, and an official client can read ours."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from socketio.packet import BINARY_EVENT, Packet

from ingress.errors import ProblemError, absent, too_many
from ingress.sockets.packets import (
    BadPacket,
    Head,
    Kind,
    build_problem,
    build_refusal,
    load_event,
    parse_head,
    parse_join,
    render_answer,
    render_event,
    render_joined,
    render_open,
    render_own,
    render_refused_join,
)
from ingress.stream.frames import SentEvent


@pytest.mark.parametrize(
    ("frame", "head"),
    [
        ("3", Head(Kind.PONG)),
        ("1", Head(Kind.LEAVE)),
        ("41", Head(Kind.LEAVE)),
        ("40", Head(Kind.JOIN, at=2)),
        ('40/other,{"token":"t"}', Head(Kind.JOIN, "/other", at=9)),
        ("40/other?a=b,", Head(Kind.JOIN, "/other", at=13)),
        ('42["m",{}]', Head(Kind.CALL, name="m", at=2)),
        ('427["m",{}]', Head(Kind.CALL, ack=7, name="m", at=3)),
        ('4512-7["m"]', Head(Kind.CALL, ack=7, attachments=12, name="m", at=6)),
        ('42[ "m"]', Head(Kind.CALL, at=2)),
        ('42["\\u006d"]', Head(Kind.CALL, at=2)),
    ],
)
def test_the_head_is_read_without_the_data(frame: str, head: Head) -> None:
    assert parse_head(frame) == head


FRAMES = [
    "",
    "0",
    "2probe",
    '3{"a":1}',
    "3" + "[" * 1100,
    "5",
    "6",
    "bAAAA",
    "x",
    "4",
    "43[]",
    "431[1]",
    "44{}",
    "461-1[]",
    '4299999999999999999["m"]',
    '42/other,["m"]',
    '421-["m"]',
    '45["m"]',
    '450-1["m"]',
    '45999999999999-["m"]',
    "40/" + "n" * 200 + ",",
    '42\u0663["m"]',
    '42\u00b2["m"]',
]


@pytest.mark.parametrize("frame", FRAMES)
def test_what_no_client_may_send_is_no_packet(frame: str) -> None:
    with pytest.raises(BadPacket):
        parse_head(frame)


@given(st.text(max_size=60), st.from_regex(r"\A[0-6]\d{0,3}-?(/\w*,?)?\d{0,20}.{0,20}\Z"))
def test_any_text_has_a_head_or_is_no_packet(text: str, rest: str) -> None:
    for frame in (text, "42" + text, "4" + rest):
        try:
            head = parse_head(frame)
        except BadPacket:
            continue
        assert 0 <= head.at <= len(frame)


async def read(frame: str, *attachments: bytes) -> tuple[str, list[Any]]:
    event = await load_event(frame, parse_head(frame))
    event.fill(attachments)
    return event.name, event.arguments


async def test_attachments_get_to_their_places() -> None:
    frame = '452-["m",{"a":{"_placeholder":true,"num":1},"b":[{"_placeholder":true,"num":0}]}]'

    assert await read(frame, b"zero", b"one") == ("m", [{"a": b"one", "b": [b"zero"]}])
    assert await read('451-["m",{"_placeholder":true,"num":0}]', b"x") == ("m", [b"x"])


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"))
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(VALUES, min_size=1, max_size=2), st.none() | st.integers(0, 2**53 - 1))
async def test_what_an_official_client_sends_is_read_as_it_was_meant(arguments: list[Any], ack: int | None) -> None:
    packet = Packet(data=["m", *arguments], id=ack)
    encoded: Any = packet.encode()
    frame, *attachments = encoded if packet.packet_type == BINARY_EVENT else [encoded]

    assert parse_head("4" + frame).ack == ack
    assert await read("4" + frame, *attachments) == ("m", arguments)


@pytest.mark.parametrize(
    "frame",
    [
        "421",
        "421[",
        "421{}",
        "421[]",
        "421[1]",
        '421["m",{"_placeholder":true,"num":0}]',
        '451-1["m"]',
        '451-1["m",{"_placeholder":true,"num":1}]',
        '451-1["m",{"_placeholder":true,"num":true}]',
        '451-1["m",{"_placeholder":true}]',
        '451-1["m",{"_placeholder":true,"num":0},{"_placeholder":true,"num":0}]',
        '421["m",{"a":1,"a":2}]',
        '421["m","\\u0000"]',
        '421["m","\\ud800"]',
        '421["m","\ud800"]',
        '421["m",NaN]',
        '421["m",1e999]',
        "421true",
        '427 ["m"',
        "421" + "[" * 10_000,
        '451-1["m",{"_placeholder":true,"num":-1}]',
        '451-1["m",{"_placeholder":true,"num":"0"}]',
    ],
)
async def test_an_event_that_can_not_be_read_is_a_problem(frame: str) -> None:
    with pytest.raises(ProblemError) as refused:
        await read(frame)

    assert refused.value.answer.status == 400


def test_a_client_may_join_without_data() -> None:
    assert parse_join("40", parse_head("40")) is None
    assert parse_join('40{"token":"t"}', parse_head('40{"token":"t"}')) == {"token": "t"}
    with pytest.raises(ProblemError):
        parse_join("40{", parse_head("40{"))


def decode(frame: str) -> Packet:
    """As the official client in Python reads it."""
    return Packet(encoded_packet=frame.removeprefix("4"))


def test_what_is_sent_is_what_an_official_client_reads() -> None:
    event = decode(render_event(SentEvent("chat_delta", '{"text":"ä"}'.encode())))
    answer = decode(render_answer(7, 200, {"a": 1}))
    refused = decode(render_refused_join("/x", absent("No.")))

    assert event.data == ["chat_delta", {"text": "ä"}]
    assert decode(render_own("session_info", {"a": 1})).data == ["session_info", {"a": 1}]
    assert (answer.id, answer.data) == (7, [{"status": 200, "body": {"a": 1}}])
    assert (refused.namespace, refused.data["message"], refused.data["data"]["status"]) == ("/x", "No.", 404)
    assert decode(render_refused_join("/", absent("No."))).namespace is None
    assert decode(render_joined("s")).data == {"sid": "s"}
    assert json.loads(render_open("s", 1000)[1:])["maxPayload"] == 1000


def test_a_refusal_is_a_problem_with_the_time_to_wait() -> None:
    refusal = build_refusal(too_many("Enough.", retry_after_s=3))

    assert refusal["status"] == refusal["body"]["status"] == 429
    assert refusal["body"]["retry_after_s"] == 3
    assert "retry_after_s" not in build_problem(absent())
