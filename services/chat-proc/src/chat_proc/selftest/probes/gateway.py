"""Attempts to get more from the gateway than was granted, or to block it for other calls."""

import array
import json
import socket
import struct
import time
from dataclasses import replace
from functools import partial
from typing import Final, cast

from chat_proc.selftest.probes.attempts import Denied, Group, Reached, Surroundings, try_each

GATEWAY: Final = Group("gateway")
TIMEOUTS: Final = Group("gateway, by waiting")
_WAIT_S: Final = 20.0
_FLOOD: Final = 10_000
_BINARY: Final = 0x80000000
_DEPTH: Final = 200_000
_NO_MESSAGES: Final = (
    *(b"[]", b"null", b"\xff\xfe", b'{"kind":"launch"}', b'{"kind":"call"}'),
    b'{"kind":"call","id":"1","tool_id":"a.b","arguments":{}}',
)


@GATEWAY.attempt
def call_a_tool_that_is_not_granted(around: Surroundings) -> object:
    return _call(around, "io_tools.write")


@GATEWAY.attempt
def call_a_private_attribute(around: Surroundings) -> object:
    alias = around.granted.partition(".")[0]
    return _call(around, f"{alias}._secret", f"{alias}.__class__", f"{around.granted}.__globals__", alias, "", "../x")


@GATEWAY.attempt
def call_with_arguments_beyond_the_grant(around: Surroundings) -> object:
    return _call(around, around.granted, text="x" * 1000)


@GATEWAY.attempt
def call_with_arguments_that_the_tool_does_not_have(around: Surroundings) -> object:
    return _call(around, around.granted, other="x")


@GATEWAY.attempt
def call_without_a_greeting(around: Surroundings) -> object:
    with _connect(around) as line:
        return _speak(line, _encode({"kind": "call", "id": 1, "tool_id": around.granted, "arguments": {}}))


@GATEWAY.attempt
def greet_with_a_forged_nonce(around: Surroundings) -> None:
    _greet(replace(around, nonce="x" * len(around.nonce))).close()


@GATEWAY.attempt
def greet_with_the_nonce_of_another_run(around: Surroundings) -> None:
    _greet(replace(around, nonce=around.nonces[0])).close()


@GATEWAY.attempt
def greet_with_the_nonce_of_an_ended_run(around: Surroundings) -> None:
    _greet(replace(around, nonce=around.nonces[1])).close()


@GATEWAY.attempt
def announce_a_frame_of_100_megabytes(around: Surroundings) -> object:
    return _greet_and_speak(around, struct.pack(">I", 100 << 20))


@GATEWAY.attempt
def send_a_binary_frame(around: Surroundings) -> object:
    return _greet_and_speak(around, struct.pack(">I", _BINARY | 5) + b"hello")


@GATEWAY.attempt
def send_invalid_json(around: Surroundings) -> object:
    return _greet_and_speak(around, _frame(b"{x}"))


@GATEWAY.attempt
def send_json_that_is_not_a_message(around: Surroundings) -> object:
    return try_each(partial(_greet_and_speak, around, _frame(text)) for text in _NO_MESSAGES)


@GATEWAY.attempt
def send_deeply_nested_json(around: Surroundings) -> object:
    deep = b"[" * _DEPTH + b"]" * _DEPTH
    return _greet_and_speak(around, _frame(b'{"kind":"call","id":1,"tool_id":"a.b","arguments":{"a":' + deep + b"}}"))


@GATEWAY.attempt
def send_numbers_that_are_not_finite(around: Surroundings) -> object:
    return _greet_and_speak(around, _frame(b'{"kind":"call","id":NaN,"tool_id":"a.b","arguments":{"a":1e999}}'))


@GATEWAY.attempt
def pass_open_file_descriptors(around: Surroundings) -> None:
    """The kernel drops descriptors that are not received; the gateway must neither keep them nor fail."""
    files = array.array("i", [0] * 100)
    call = _encode({"kind": "call", "id": 1, "tool_id": around.granted, "arguments": {"text": "x"}})
    with _greet(around) as line:
        line.sendmsg([call], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        if _read(line).get("ok"):
            raise Denied("the files were dropped")


@GATEWAY.attempt
def make_ten_thousand_calls(around: Surroundings) -> object:
    with _greet(around) as line:
        for number in range(_FLOOD):
            _speak(line, _encode({"kind": "call", "id": number, "tool_id": around.granted, "arguments": {}}))
    return f"{_FLOOD} calls"


@GATEWAY.attempt
def make_ten_thousand_connections(around: Surroundings) -> object:
    refused = sum(_is_refused(around) for _ in range(_FLOOD))
    if refused < _FLOOD // 2:
        return f"{_FLOOD - refused} connections"
    raise Denied(f"{refused} were refused")


@TIMEOUTS.attempt
def say_nothing(around: Surroundings) -> object:
    with _connect(around) as line:
        return _speak(line, b"")


@TIMEOUTS.attempt
def send_half_a_frame(around: Surroundings) -> object:
    return _greet_and_speak(around, struct.pack(">I", 1000) + b"{")


@TIMEOUTS.attempt
def send_one_byte_per_second(around: Surroundings) -> object:
    started = time.monotonic()
    with _greet(around) as line:
        _send(line, struct.pack(">I", 1000))
        while time.monotonic() - started < _WAIT_S:
            _send(line, b" ")
            time.sleep(1)
    return f"{_WAIT_S} s"


@TIMEOUTS.attempt
def never_read_a_response(around: Surroundings) -> object:
    call = _encode({"kind": "call", "id": 1, "tool_id": "io_tools.write", "arguments": {}})
    with _greet(around) as line:
        while True:
            _send(line, call * 1000)


def _call(around: Surroundings, *tool_ids: str, **arguments: str) -> object:
    """Raises Denied if every call is refused as not allowed."""
    codes = ""
    for tool_id in tool_ids:
        with _greet(around) as line:
            reply = _speak(line, _encode({"kind": "call", "id": 1, "tool_id": tool_id, "arguments": arguments}))
        if reply.get("ok") is not False or reply.get("error_code") not in ("not_allowed", "bad_arguments"):
            return reply
        codes = str(reply["error_code"])
    raise Denied(codes)


def _is_refused(around: Surroundings) -> bool:
    try:
        _connect(around).close()
    except OSError:
        return True
    return False


def _connect(around: Surroundings) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(_WAIT_S)
    line.connect(around.gateway)
    return line


def _greet(around: Surroundings) -> socket.socket:
    """A connection that the gateway has accepted. Raises ConnectionError otherwise."""
    line = _connect(around)
    _speak(line, _encode({"kind": "hello", "nonce": around.nonce}))
    return line


def _greet_and_speak(around: Surroundings, data: bytes) -> dict[str, object]:
    with _greet(around) as line:
        return _speak(line, data)


def _speak(line: socket.socket, data: bytes) -> dict[str, object]:
    """The reply. Raises ConnectionError if the connection is cut instead."""
    _send(line, data)
    return _read(line)


def _send(line: socket.socket, data: bytes) -> None:
    try:
        line.sendall(data)
    except TimeoutError as silence:
        raise Reached(f"not cut within {_WAIT_S} s") from silence


def _read(line: socket.socket) -> dict[str, object]:
    head = _read_exactly(line, 4)
    return cast("dict[str, object]", json.loads(_read_exactly(line, struct.unpack(">I", head)[0])))


def _read_exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            piece = line.recv(size - len(data))
        except TimeoutError as silence:
            raise Reached(f"neither an answer nor an end within {_WAIT_S} s") from silence
        if not piece:
            raise ConnectionResetError("the connection was cut")
        data += piece
    return data


def _encode(message: dict[str, object]) -> bytes:
    return _frame(json.dumps(message).encode())


def _frame(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text
