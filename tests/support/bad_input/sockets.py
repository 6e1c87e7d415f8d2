"""Messages that a client can send over an open socket, and the result: an answer, a refused connection, or the end."""

from dataclasses import dataclass

from bad_input.cases import ABSENT, MALFORMED, TOO_LARGE, UNPROCESSABLE, UUID, Refusal

BROKEN, NO_UTF_8, AGAINST_THE_RULES, OVERSIZED = 1002, 1007, 1008, 1009
"""Close codes, as documented in docs/how-to/connect-with-socket-io.md."""


@dataclass(frozen=True)
class Wire:
    """Raw bytes on the connection, which need not be a frame."""

    raw: bytes


Frame = str | bytes | Wire


def header(first: int, length: int, *, masked: bool = True) -> bytes:
    """The head of a WebSocket frame; its mask changes nothing."""
    return bytes([first, length | (128 if masked else 0)]) + (bytes(4) if masked else b"")


FOREIGN = "{foreign}"
"""Stands for a conversation of another user."""
_PLACE = '{"_placeholder":true,"num":0}'


def call(name: str, payload: str) -> list[Frame]:
    return [f'421["{name}",{payload}]']


ENDS: dict[str, tuple[list[Frame], int]] = {
    # No WebSocket
    "reserved opcode": ([Wire(header(0x83, 0))], BROKEN),
    "reserved bit": ([Wire(header(0xC1, 0))], BROKEN),
    "without a mask": ([Wire(header(0x81, 1, masked=False) + b"3")], BROKEN),
    "end of nothing": ([Wire(header(0x80, 1) + b"3")], BROKEN),
    "ping in pieces": ([Wire(header(0x09, 0))], BROKEN),
    "ping of 126 bytes": ([Wire(header(0x89, 126) + bytes(2))], BROKEN),
    "another text inside a text": ([Wire(header(0x01, 1) + b"3" + header(0x81, 1) + b"3")], BROKEN),
    "http": ([Wire(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")], BROKEN),
    "no utf-8": ([Wire(header(0x81, 2) + b"\xff\xfe")], NO_UTF_8),
    "half a letter": ([Wire(header(0x81, 1) + b"\xc3")], NO_UTF_8),
    "surrogate in utf-8": ([Wire(header(0x81, 3) + b"\xed\xa0\x80")], NO_UTF_8),
    # No packet of a client
    "nothing": ([""], BROKEN),
    "letters": (["x"], BROKEN),
    "our opening": (['0{"sid":"x"}'], BROKEN),
    "our ping": (["2"], BROKEN),
    "a probe": (["2probe"], BROKEN),
    "an upgrade": (["5"], BROKEN),
    "no operation": (["6"], BROKEN),
    "base64": (["bAAAA"], BROKEN),
    "packets of polling": (["3\x1e3", "4"], BROKEN),
    "an answer": (['431[["no call of ours"]]'], BROKEN),
    "a binary answer": (["461-1[]"], BROKEN),
    "our refusal": (["44{}"], BROKEN),
    "other digits": (['4\u0662["chat_message",{}]'], BROKEN),
    "namespace of another": (['42/admin,1["chat_message",{}]'], BROKEN),
    "namespace of 200 letters": (["40/" + "n" * 200 + ","], BROKEN),
    "number above 53 bits": (['429007199254740992["chat_message",{}]'], BROKEN),
    "attachments of a text": (['421-1["chat_message",{}]'], BROKEN),
    "binary without a count": (['451["chat_message",{}]'], BROKEN),
    "attachment of nothing": ([b"x"], BROKEN),
    "empty attachment of nothing": ([b""], BROKEN),
    "text for an attachment": ([f'451-1["chat_message",{_PLACE}]', "3"], BROKEN),
    "attachment too many": ([f'451-1["no_such",{_PLACE}]', b"x", b"x"], BROKEN),
    # Against the rules
    "joins again": (["40{}"], AGAINST_THE_RULES),
    "flood of pongs": (["3"] * 200, AGAINST_THE_RULES),
    "flood of calls": (['42["conv_status.get",{}]'] * 200, AGAINST_THE_RULES),
    "flood of namespaces": (["40/admin,"] * 200, AGAINST_THE_RULES),
    "101 attachments": (['45101-1["chat_message"]'], OVERSIZED),
    "999,999,999 attachments": (['45999999999-1["chat_message"]'], OVERSIZED),
    "64 bits of bytes": ([Wire(header(0x81, 127) + bytes(4))], BROKEN),
}
"""By name: the frames behind the connection, and the code with which that one socket ends."""

EARLY_ENDS: dict[str, tuple[list[Frame], int]] = {
    "a call": (['421["conv_status.get",{}]'], AGAINST_THE_RULES),
    "a call of no JSON": (["421["], AGAINST_THE_RULES),
    "an attachment": ([b"x"], BROKEN),
    "letters": (["x"], BROKEN),
    "20 KB": (['40{"token":"' + "x" * 20_000 + '"}'], OVERSIZED),
    "70 KB": (["40" + "x" * 70_000], OVERSIZED),
    "70 KB of bytes": ([bytes(70_000)], OVERSIZED),
    "flood of namespaces": (["40/admin,"] * 200, AGAINST_THE_RULES),
}
"""The same for a client that has not joined."""

REFUSED_JOINS: dict[str, tuple[str, Refusal]] = {
    "another namespace": ("40/admin,", ABSENT),
    "namespace with a query": ("40/admin?token=x,", ABSENT),
    "namespace upwards": ("40/../admin,", ABSENT),
    "no JSON": ("40{", MALFORMED),
    "U+0000": ('40{"tenant":"a\\u0000"}', MALFORMED),
    "half of a pair": ('40{"tenant":"\\ud800"}', MALFORMED),
    "a key twice": ('40{"tenant":"a","tenant":"b"}', MALFORMED),
    "depth 8,000": ("40" + "[" * 8_000, MALFORMED),
    "a list": ("40[1]", UNPROCESSABLE),
    "a text": ('40"x"', UNPROCESSABLE),
    "an unknown field": ('40{"admin":true}', UNPROCESSABLE),
    "token of a number": ('40{"token":7}', UNPROCESSABLE),
}
"""By name: how a client connects, and the problem of its `connect_error`."""

ANSWERS: dict[str, tuple[list[Frame], Refusal]] = {
    # Whose data can't be read
    "nothing": (["421"], MALFORMED),
    "no JSON": (["421["], MALFORMED),
    "an object": (["421{}"], MALFORMED),
    "no name": (["421[]"], MALFORMED),
    "a number for a name": (["421[1]"], MALFORMED),
    "depth 5,000": (["421" + "[" * 5_000], MALFORMED),
    "U+0000": (call("chat_message", '{"conversation_id":"new","text":"a\\u0000b"}'), MALFORMED),
    "half of a pair": (call("chat_message", '{"conversation_id":"new","text":"a\\ud800"}'), MALFORMED),
    "U+0000 in the name": (['421["chat_message\\u0000",{}]'], MALFORMED),
    "attachment that stands nowhere": (['451-1["chat_message",{}]', b"x"], MALFORMED),
    "attachment that stands twice": ([f'451-1["chat_message",{_PLACE},{_PLACE}]', b"x"], MALFORMED),
    "attachment of another number": (['451-1["chat_message",{"_placeholder":true,"num":7}]', b"x"], MALFORMED),
    "attachment without a number": (['451-1["chat_message",{"_placeholder":true}]', b"x"], MALFORMED),
    "attachment that never comes": ([f'421["chat_message",{_PLACE}]'], MALFORMED),
    # Which nobody offers
    "no such event": (call("no_such", "{}"), ABSENT),
    "an event of the library": (call("connect", "{}"), ABSENT),
    "its end": (call("disconnect", "{}"), ABSENT),
    "an event of ours": (call("session_end", "{}"), ABSENT),
    "a method": (call("__class__", "{}"), ABSENT),
    "a name of 5,000 letters": (call("x" * 5_000, "{}"), ABSENT),
    # Of another form
    "no payload": (['421["chat_message"]'], UNPROCESSABLE),
    "two payloads": (['421["chat_message",{},{}]'], UNPROCESSABLE),
    "a list": (call("chat_message", "[]"), UNPROCESSABLE),
    "null": (call("chat_message", "null"), UNPROCESSABLE),
    "an unknown field": (call("conv_subscribe", '{"conversation_id":"new","admin":true}'), UNPROCESSABLE),
    "bytes for a text": (
        [f'451-1["chat_message",{{"conversation_id":"new","text":{_PLACE}}}]', b"x"],
        UNPROCESSABLE,
    ),
    "bytes for an id": ([f'451-1["conv_status.get",{{"conversation_id":{_PLACE}}}]', b"x"], UNPROCESSABLE),
    "a text for a file": (
        call("chat_message", '{"conversation_id":"new","text":"a","files":[{"filename":"a.txt","data":"x"}]}'),
        UNPROCESSABLE,
    ),
    "21 files": (['4521-1["chat_message",{}]', *[b"x"] * 21], TOO_LARGE),
    "a text of 1,000,001 letters": (
        call("chat_message", '{"conversation_id":"new","text":"' + "x" * 1_000_001 + '"}'),
        TOO_LARGE,
    ),
    # Of somebody else
    "state of a foreign one": (call("conv_status.get", f'{{"conversation_id":"{FOREIGN}"}}'), ABSENT),
    "follow a foreign one": (call("conv_subscribe", f'{{"conversation_id":"{FOREIGN}"}}'), ABSENT),
    "follow it from a place": (call("conv_subscribe", f'{{"conversation_id":"{FOREIGN}","after":"1-1"}}'), ABSENT),
    "leave a foreign one": (call("conv_unsubscribe", f'{{"conversation_id":"{FOREIGN}"}}'), ABSENT),
    "write to a foreign one": (call("chat_message", f'{{"conversation_id":"{FOREIGN}","text":"a"}}'), ABSENT),
    "stop a foreign one": (call("chat_signal", f'{{"conversation_id":"{FOREIGN}","kind":"cancel"}}'), ABSENT),
    "follow an absent one": (call("conv_subscribe", f'{{"conversation_id":"conv_{UUID}"}}'), ABSENT),
}
"""By name: a call with the number 1, and its answer; the socket stays open."""
