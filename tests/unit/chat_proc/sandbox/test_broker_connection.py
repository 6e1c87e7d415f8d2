"""The line to the broker: which addresses there are, and that every way it can fail is an error with its reason."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from scripted_broker import PAIR, follow, open_broker

from chat_proc.sandbox.containers import (
    BadBrokerAddress,
    BrokerConnection,
    BrokerRefused,
    BrokerUnreachable,
    open_broker_connection,
    parse_address,
)
from everturn.execution.broker_messages import Attach, Attached, BrokerRefusal, PairStarted, StartPair

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def served_by(serve: Serve, folder: Path) -> AsyncIterator[BrokerConnection]:
    address = parse_address(f"unix://{folder}/b.sock")
    async with await asyncio.start_unix_server(serve, folder / "b.sock"), open_broker_connection(address) as line:
        yield line


def test_a_unix_socket_is_an_address():
    assert parse_address("unix:///run/everturn/broker.sock").path == "/run/everturn/broker.sock"


@pytest.mark.parametrize("url", ["tcp://host:1", "http://host", "/run/x", "unix://", "tls://host", "tls://host:x"])
def test_anything_else_is_refused(url):
    with pytest.raises(BadBrokerAddress, match="BROKER_URL"):
        parse_address(url)


def test_a_broker_behind_tls_needs_the_folder_of_its_files():
    with pytest.raises(BadBrokerAddress, match="BROKER_TLS_DIR"):
        parse_address("tls://host:9")


def test_unreadable_files_are_reported(tmp_path):
    with pytest.raises(BadBrokerAddress, match="can't be used"):
        parse_address("tls://host:9", tmp_path)


async def test_a_request_gets_its_answer(tmp_path):
    async with (
        open_broker(tmp_path, follow()) as broker,
        open_broker_connection(parse_address(broker.url)) as line,
    ):
        assert await line.request(StartPair("default", "run-1"), PairStarted, timeout_s=5) == PAIR


async def test_a_refusal_is_an_error_with_its_code(tmp_path):
    script = follow(refusal=BrokerRefusal("engine_down", "the engine is gone"))

    async with (
        open_broker(tmp_path, script) as broker,
        open_broker_connection(parse_address(broker.url)) as line,
    ):
        with pytest.raises(BrokerRefused, match="the engine is gone") as raised:
            await line.request(StartPair("default", "run-1"), PairStarted, timeout_s=5)

    assert raised.value.code == "engine_down"


async def test_nobody_at_the_address_is_an_error(tmp_path):
    with pytest.raises(BrokerUnreachable, match="can't be reached"):
        async with open_broker_connection(parse_address(f"unix://{tmp_path}/none")):
            pass


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"", "broke"),
        (b"\0\0", "broke"),
        (b"\0\0\0\2[]", "broke"),
        (b"\xff\xff\xff\xff", "broke: FrameError: too_large"),
        (b'\0\0\0\x10{"kind": "hello"', "broke"),
    ],
)
async def test_a_broker_that_leaves_or_sends_invalid_data_is_an_error(tmp_path, said, message):
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        writer.close()

    async with served_by(leave, tmp_path) as line:
        with pytest.raises(BrokerUnreachable, match=message):
            await line.request(Attach("x"), Attached, timeout_s=5)


async def test_a_broker_that_says_nothing_is_an_error_after_a_while(tmp_path):
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with served_by(hold, tmp_path) as line:
        with pytest.raises(BrokerUnreachable, match=r"did not answer attach within 0\.05 s"):
            await line.request(Attach("x"), Attached, timeout_s=0.05)


async def test_what_the_supervisor_says_right_after_the_answer_is_not_lost(tmp_path):
    async def attach(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b'\0\0\0\x13{"kind":"attached"}' + b'\0\0\0\x0f{"kind":"next"}')
        await writer.drain()
        await reader.read()
        writer.close()

    async with served_by(attach, tmp_path) as line:
        await line.request(Attach("x"), Attached, timeout_s=5)

        assert await line.into_stream().receive() == {"kind": "next"}
