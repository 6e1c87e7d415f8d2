"""Frames of clients: what is read, and what is no packet."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from socketio.packet import BINARY_EVENT, Packet

from ingress.sockets.framing import BadCall, BadFrame, BadJoin, Call, Join, Leave, Pong, parse_packet


@pytest.mark.parametrize(
    ("frame", "packet"),
    [
        ("3", Pong()),
        ("1", Leave()),
        ("41", Leave()),
        ("40", Join("/", None)),
        ('40{"token":"t"}', Join("/", {"token": "t"})),
        ('40/other,{"token":"t"}', Join("/other", {"token": "t"})),
        ("40/other?a=b,", Join("/other", None)),
        ('42["chat_message",{"text":"x"}]', Call("chat_message", None, 0)),
        ('427["chat_message",{"text":"x"}]', Call("chat_message", 7, 0)),
        ('451-7["m",{"f":{"_placeholder":true,"num":0}}]', Call("m", 7, 1)),
        (
            '452-["m",{"a":{"_placeholder":true,"num":1},"b":[{"_placeholder":true,"num":0}]}]',
            Call("m", None, 2),
        ),
    ],
)
def test_packets_of_clients_are_read(frame: str, packet: object) -> None:
    assert parse_packet(frame) == packet


@pytest.mark.parametrize(
    "frame",
    [
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
    ],
)
def test_everything_else_is_refused(frame: str) -> None:
    with pytest.raises(BadFrame):
        parse_packet(frame)


@pytest.mark.parametrize(
    "frame",
    [
        "42",
        "42[]",
        "42{}",
        "42[1]",
        "42true",
        '42["m"',
        '42["m",NaN]',
        '42["m",1e999]',
        '42["m","\\u0000"]',
        '42["m","\\ud800"]',
        '42["m","\ud800"]',
        '42["m",{"a":1,"a":2}]',
        '427 ["m"',
        "42" + "[" * 10_000,
        '451-["m"]',
        '451-["m",{"_placeholder":true,"num":1}]',
        '451-["m",{"_placeholder":true,"num":-1}]',
        '451-["m",{"_placeholder":true,"num":"0"}]',
        '451-["m",{"_placeholder":true}]',
        '451-["m",{"_placeholder":true,"num":0},{"_placeholder":true,"num":0}]',
    ],
)
def test_a_call_whose_data_cannot_be_read_is_still_a_call(frame: str) -> None:
    packet = parse_packet(frame)

    assert isinstance(packet, BadCall)
    assert packet.why.endswith(".")


@pytest.mark.parametrize("frame", ["40{", '40{"token":"\\u0000"}', "40/x,nothing", '40{"a":1,"a":2}'])
def test_a_connection_whose_data_cannot_be_read_is_still_one(frame: str) -> None:
    packet = parse_packet(frame)

    assert isinstance(packet, BadJoin)
    assert packet.namespace == ("/x" if "/x" in frame else "/")


@given(st.text(max_size=60) | st.from_regex(r"\A4[0-6]\d{0,3}-?(/\w*,?)?\d{0,20}.{0,20}\Z"))
def test_no_text_does_anything_but_be_read_or_refused(frame: str) -> None:
    try:
        packet = parse_packet(frame)
    except BadFrame:
        return

    assert isinstance(packet, Pong | Leave | Join | Call | BadJoin | BadCall)


def _event(files: int) -> str:
    places = ",".join(f'{{"_placeholder":true,"num":{number}}}' for number in range(files))
    return f'["m",{{"f":[{places}]}}]'


@given(
    st.sampled_from(["42", "45"]),
    st.sampled_from(["", "0-", "1-", "3-", "03-"]),
    st.sampled_from(["", "/,", "/?a,", "/other,"]),
    st.from_regex(r"[0-9]{0,17}", fullmatch=True),
    st.integers(0, 3).map(_event),
)
def test_the_library_reads_a_call_as_it_was_judged(kind: str, files: str, namespace: str, ack: str, data: str) -> None:
    frame = kind + files + namespace + ack + data
    try:
        call = parse_packet(frame)
    except BadFrame:
        return
    assume(isinstance(call, Call))
    assert isinstance(call, Call)

    packet: Any = Packet(encoded_packet=frame[1:])

    waits = packet.packet_type == BINARY_EVENT
    assert (packet.data[0], packet.id, packet.attachment_count) == (call.name, call.ack, call.attachments)
    assert packet.namespace in {"/", None}
    assert waits == bool(call.attachments)
