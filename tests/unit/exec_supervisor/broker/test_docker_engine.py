"""How the engine's address and events are read; the calls themselves are tested with a real engine."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from everturn.core.errors import Invalid
from everturn.execution.broker_messages import KEEPALIVE
from exec_supervisor.broker.docker_engine import DockerEngine, EngineEvent, parse_address, parse_event
from exec_supervisor.broker.engine import EngineDown


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("unix:///var/run/docker.sock", "/var/run/docker.sock"),
        ("tcp://engine:2375", ("engine", 2375)),
        ("tcp://[::1]:2375", ("::1", 2375)),
    ],
)
def test_an_engine_address_is_a_socket_or_a_port(address: str, place: object):
    assert parse_address(address) == place


@pytest.mark.parametrize(
    "address",
    ["", "docker.sock", "unix://docker.sock", "tcp://engine", "ssh://me@engine", "https://engine:2376", "fd://"],
)
def test_any_other_address_is_refused(address: str):
    with pytest.raises(Invalid):
        parse_address(address)


def test_an_event_is_its_action_with_the_labels_of_its_container():
    line = b'{"Type":"container","Action":"die","Actor":{"Attributes":{"everturn.pair":"p1"}},"timeNano":1500000000}\n'

    assert parse_event(line) == EngineEvent("die", {"everturn.pair": "p1"}, 1.5)


async def test_without_an_engine_every_call_fails_at_once(tmp_path: Path):
    engine = DockerEngine(f"unix://{tmp_path}/nothing.sock")

    watching = engine.watch("x", 0.0).__aenter__()
    for call in (engine.start("x"), engine.attach("x"), engine.load_labeled("x"), watching):
        async with asyncio.timeout(5):
            with pytest.raises(EngineDown):
                await call
    engine.close()


async def test_pairs_that_fail_together_leave_no_unread_error(tmp_path: Path):
    engine, unread = DockerEngine(f"unix://{tmp_path}/nothing.sock"), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
    for _ in range(20):
        calls = [asyncio.create_task(engine.start("x")) for _ in range(4)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
    gc.collect()
    assert unread == []
    engine.close()


async def test_events_over_tcp_notice_that_the_engine_has_vanished(monkeypatch: pytest.MonkeyPatch):
    connect, opened = asyncio.open_connection, list[asyncio.StreamWriter]()

    async def note(*args: Any, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await connect(*args, **options)
        opened.append(writer)
        return reader, writer

    monkeypatch.setattr(asyncio, "open_connection", note)
    server = await asyncio.start_server(lambda _, writer: writer.write(b"HTTP/1.0 200 OK\r\n\r\n"), "127.0.0.1", 0)
    engine = DockerEngine(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    async with asyncio.timeout(10), engine.watch("x", 0.0):
        line = opened[0].get_extra_info("socket")
        found = [line.getsockopt(level, option) for level, option, _ in KEEPALIVE]
    engine.close()
    server.close()

    assert found == [value for _, _, value in KEEPALIVE]


async def test_an_engine_that_never_answers_is_down_after_the_limit(tmp_path: Path):
    server = await asyncio.start_unix_server(lambda _reader, _writer: None, tmp_path / "mute.sock")
    engine = DockerEngine(f"unix://{tmp_path}/mute.sock", timeout_s=1)

    for call in (engine.start("x"), engine.attach("x")):
        async with asyncio.timeout(10):
            with pytest.raises(EngineDown):
                await call
    engine.close()
    server.close()
