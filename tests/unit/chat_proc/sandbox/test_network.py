"""The worker's end of a program's connections, with the supervisor's end and real sockets, but no sandbox between."""

import asyncio
import contextlib
import os
import time
from ipaddress import ip_address

import pytest
from helpers.waiting import wait_until

from chat_proc.sandbox.network import NetworkAccess, NetworkLimits, find_network_fault
from chat_proc.sandbox.port import ConnectionRecord
from chat_proc.tools.web.client import AddressGuard, is_public
from everturn.execution.destinations import MODEL_HOST
from everturn.execution.framing import FrameDecoder, encode_frame
from everturn.execution.messages import (
    ALLOWED_HOSTS_ONLY,
    MAX_STREAMS,
    MIB,
    OpenStream,
    Posture,
    StreamCredit,
    StreamData,
    StreamLost,
    StreamOpened,
)
from everturn.execution.profiles import load_profiles
from everturn.execution.records import BadMessage, build_message, parse_message
from everturn.execution.streams import FRAME_COST_BYTES, WINDOW_BYTES, Relay
from exec_supervisor.supervisor.listeners import open_listener
from exec_supervisor.supervisor.network import BACKLOG, ProgramNetwork

WITHIN_S = 20
HOST = "api.example.com"
LIMITS = NetworkLimits()
POSTURE = Posture("bubblewrap", "", 1, "", ALLOWED_HOSTS_ONLY, "", "", "", "")


async def resolve(host, port, turn_id):
    return (
        ["10.0.0.1"]
        if host.startswith("private")
        else ["8.8.8.8", "::1"]
        if host.startswith("mixed")
        else ["127.0.0.1"]
    )


def is_here(address):
    return address == ip_address("127.0.0.1") or is_public(address)


@contextlib.asynccontextmanager
async def open_network(tmp_path, serve, limits=LIMITS, find=resolve, serve_models=None):
    """The path of the supervisor's socket, the port of a server, the run's network, and all messages by direction."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hosts = [f"{HOST}:{port}", f"*.example.com:{port}", "closed.example.com:1", f"{MODEL_HOST}:80", f"{MODEL_HOST}:443"]
    profiles = {"net": load_profiles("")["default"].model_copy(update={"network": tuple(hosts)})}
    guard = AddressGuard(find, is_allowed=is_here, ports=range(1, 1 << 16))
    network = NetworkAccess(profiles, guard.find_addresses, limits).open("net", "turn_1", serve_models)
    assert network is not None
    sent, received = [], []

    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:

        async def to_worker(message):
            [frame] = FrameDecoder().feed(encode_frame(build_message(message)))
            parsed = parse_message(frame, OpenStream, StreamData, StreamCredit, StreamLost)
            sent.append(parsed)
            if isinstance(parsed, OpenStream):
                group.create_task(network.serve(parsed, to_program))
            else:
                network.receive(parsed)

        async def to_program(message):
            [frame] = FrameDecoder().feed(encode_frame(build_message(message)))
            received.append(parse_message(frame, StreamOpened, StreamData, StreamCredit, StreamLost))
            program.receive(received[-1])

        program = ProgramNetwork(os.getuid(), to_worker)
        serving = group.create_task(program.run(open_listener(tmp_path / "network.sock", mode=0o600, backlog=BACKLOG)))
        try:
            yield str(tmp_path / "network.sock"), port, network, received
        finally:
            serving.cancel()
            network.close()
            server.close()


async def connect(path, host, port):
    """The streams of a connection, or why there is none."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(encode_frame(build_message(OpenStream(0, host, port))))
    size = int.from_bytes(await reader.readexactly(4), "big")
    [frame] = FrameDecoder().feed(size.to_bytes(4, "big") + await reader.readexactly(size))
    opened = parse_message(frame, StreamOpened)
    return opened.error or (reader, writer)


async def echo(reader, writer):
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        writer.close()


async def test_bytes_go_both_ways_and_each_way_ends_by_itself(tmp_path):
    payload = os.urandom(3 * MIB)

    async with open_network(tmp_path, echo) as (path, port, network, _):
        reader, writer = await connect(path, HOST, port)
        reading = asyncio.create_task(reader.read())
        writer.write(payload)
        writer.write_eof()
        assert await reading == payload

    assert network.records == (ConnectionRecord(HOST, port, 1, {}, 3 * MIB, 3 * MIB),)


@pytest.mark.parametrize(
    ("host", "number", "outcome", "said"),
    [
        ("other.example.org", None, "not_allowed", "Programs may connect to: api.example.com:"),
        (HOST, 80, "not_allowed", "api.example.com:80 is not allowed"),
        ("example.com", None, "not_allowed", "is not allowed"),
        ("127.0.0.1", None, "not_allowed", "is not allowed"),
        ("169.254.169.254", 80, "not_allowed", "is not allowed"),
        ("::1", None, "not_allowed", "is not allowed"),
        ("api.example.com\n.evil.org", None, "not_allowed", "n.evil.org:"),
        (HOST, -1, "not_allowed", "is not allowed"),
        ("private.example.com", None, "not_public", "is not on the public internet"),
        ("mixed.example.com", None, "not_public", "is not on the public internet"),
        ("closed.example.com", 1, "unreachable", "can't be reached: "),
    ],
)
async def test_what_a_profile_does_not_allow_is_refused_and_recorded(tmp_path, host, number, outcome, said):
    async with open_network(tmp_path, echo) as (path, port, network, _):
        error = await connect(path, host, port if number is None else number)
        assert isinstance(await connect(path, HOST.upper() + ".", port), tuple)

    assert isinstance(error, str) and said in error
    assert [dict(record.refused) for record in network.records] in ([{outcome: 1}, {}], [{outcome: 1}])


async def test_the_model_server_of_a_run_is_inside_the_worker(tmp_path):
    async def find_nothing(host, port, turn_id):
        raise AssertionError(host)

    payload = os.urandom(3 * MIB)
    limits = NetworkLimits(sent_bytes=MIB, received_bytes=MIB, connections=2, idle_s=0.1)
    async with open_network(tmp_path, echo, limits, find_nothing, echo) as (path, _, network, _):
        for _ in range(4):
            reader, writer = await connect(path, MODEL_HOST.upper(), 80)
            await asyncio.sleep(0.2)
            reading = asyncio.create_task(reader.read())
            writer.write(payload)
            writer.write_eof()
            assert await reading == payload
        assert "no model server at model.everturn:443" in await connect(path, MODEL_HOST, 443)
        assert "model.everturn:8080 is not allowed" in await connect(path, MODEL_HOST, 8080)

    assert network.records[0] == ConnectionRecord(MODEL_HOST, 80, 4, {}, 12 * MIB, 12 * MIB)
    async with open_network(tmp_path, echo, find=find_nothing) as (path, _, _, _):
        assert "This run has no model server" in await connect(path, MODEL_HOST, 80)


async def test_a_model_server_ends_with_its_connection_and_with_its_run(tmp_path):
    ended, began = [], asyncio.Semaphore(0)

    async def serve(reader, writer):
        began.release()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(writer)

    async def fail(reader, writer):
        writer.close()
        raise ZeroDivisionError

    async with open_network(tmp_path, echo, serve_models=serve) as (path, _, network, _):
        for _ in range(2):
            assert isinstance(await connect(path, MODEL_HOST, 80), tuple)
            await began.acquire()
        network.close()
        assert "ending" in await connect(path, MODEL_HOST, 80)
        await wait_until(lambda: len(ended) == 2)
    async with open_network(tmp_path, echo, serve_models=fail) as (path, port, _, _):
        reader, _ = await connect(path, MODEL_HOST, 80)
        assert await reader.read() == b""
        assert isinstance(await connect(path, HOST, port), tuple)


async def test_the_address_that_was_checked_is_the_one_that_is_connected(tmp_path):
    answers = iter((["127.0.0.1"], ["10.0.0.1"]))
    asked = []

    async def rebind(host, port, turn_id):
        asked.append(host)
        return next(answers)

    async with open_network(tmp_path, echo, find=rebind) as (path, port, _, _):
        assert isinstance(await connect(path, HOST, port), tuple)
        assert asked == [HOST]
        assert "public internet" in await connect(path, HOST, port)


async def test_a_flood_has_bounds_at_once_and_in_all(tmp_path):
    async with open_network(tmp_path, echo, NetworkLimits(connections=40)) as (path, port, network, _):
        first = await asyncio.gather(*(connect(path, HOST, port) for _ in range(MAX_STREAMS)))
        waiting = [asyncio.create_task(connect(path, HOST, port)) for _ in range(4)]
        done, _ = await asyncio.wait(waiting, timeout=0.2)
        assert not done
        for _, writer in first:
            writer.close()
        for opened in await asyncio.gather(*waiting):
            opened[1].close()
        for _ in range(19):
            (await connect(path, HOST, port))[1].close()
        (await connect(path, HOST, port))[1].close()
        assert "opened 40 connections" in await connect(path, HOST, port)

    assert network.records[0].opened == 40


@pytest.mark.parametrize("direction", ["download", "upload"])
async def test_a_slow_reader_stops_the_sender(tmp_path, direction):
    stopped, moved = asyncio.Event(), 0

    async def push(writer):
        nonlocal moved
        with contextlib.suppress(ConnectionError):
            while moved < 64 * MIB:
                writer.write(bytes(1 << 16))
                await asyncio.wait_for(writer.drain(), 1)
                moved += 1 << 16

    async def serve(reader, writer):
        if direction == "download":
            with contextlib.suppress(TimeoutError):
                await push(writer)
            stopped.set()
        await asyncio.sleep(WITHIN_S)

    async with open_network(tmp_path, serve) as (path, port, network, received):
        _, writer = await connect(path, HOST, port)
        if direction == "upload":
            with pytest.raises(TimeoutError):
                await push(writer)
        else:
            await stopped.wait()
        # Buffers of the kernel hold most of what has left the sender; the line has seen little more than a window.
        on_line = sum(len(message.data) for message in received if isinstance(message, StreamData))
        assert on_line <= 2 * WINDOW_BYTES + MIB
        assert isinstance(await connect(path, HOST, port), tuple)
        assert moved < 64 * MIB
        network.close()
        writer.close()


async def test_the_limit_of_bytes_ends_connections_and_refuses_later_ones(tmp_path):
    async with open_network(tmp_path, echo, NetworkLimits(sent_bytes=MIB)) as (path, port, network, _):
        reader, writer = await connect(path, HOST, port)
        writer.write(bytes(2 * MIB))
        with contextlib.suppress(ConnectionError):
            assert len(await reader.read()) <= MIB
        assert "limit of 1 MiB sent" in await connect(path, HOST, port)

    assert network.records[0].refused == {"over_limit": 2}
    assert network.records[0].sent_bytes <= MIB + WINDOW_BYTES


async def test_a_silent_connection_ends_and_closing_ends_all_at_once(tmp_path):
    async with open_network(tmp_path, echo, NetworkLimits(idle_s=0.2)) as (path, port, _, _):
        reader, _ = await connect(path, HOST, port)
        assert await reader.read() == b""

    ended = []

    async def note_end(reader, writer):
        with contextlib.suppress(ConnectionError):
            await reader.read()
        ended.append(writer)
        writer.close()

    async with open_network(tmp_path, note_end) as (path, port, network, _):
        for _ in range(3):
            assert isinstance(await connect(path, HOST, port), tuple)
        network.close()
        assert "ending" in await connect(path, HOST, port)
        await wait_until(lambda: len(ended) == 3)


async def test_large_transfers_have_the_pace_of_their_bytes_and_the_loop_stays_free(tmp_path):
    limits = NetworkLimits(bytes_per_s=4 * MIB)
    began = time.monotonic()

    async with open_network(tmp_path, echo, limits) as (path, port, _, _):
        reader, writer = await connect(path, HOST, port)
        reading = asyncio.create_task(reader.read())
        writer.write(bytes(2 * MIB))
        writer.write_eof()
        longest, last = 0.0, time.monotonic()
        while not reading.done():
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    assert 0.9 <= time.monotonic() - began < 1.8
    assert longest < 0.5


async def test_single_bytes_of_many_streams_have_the_pace_of_their_frames(tmp_path):
    streams, frames = 8, 64
    limits = NetworkLimits(bytes_per_s=4 * MIB)

    async def flood(network, port, stream):
        """Send single bytes as fast as credit allows, and give credit for those that come back."""
        credits, opened = asyncio.Queue(), asyncio.Event()
        credit = WINDOW_BYTES

        async def to_program(message):
            match message:
                case StreamOpened():
                    opened.set()
                case StreamCredit(amount=amount):
                    credits.put_nowait(amount)
                case StreamData(data=data) if data:
                    network.receive(StreamCredit(stream, max(len(data), FRAME_COST_BYTES)))

        serving = asyncio.create_task(network.serve(OpenStream(stream, HOST, port), to_program))
        await opened.wait()
        for _ in range(frames):
            while credit < FRAME_COST_BYTES:
                credit += await credits.get()
            network.receive(StreamData(stream, b"x"))
            credit -= FRAME_COST_BYTES
        network.receive(StreamData(stream, b""))
        await serving

    async with open_network(tmp_path, echo, limits) as (_, port, network, _):
        began = time.monotonic()
        await asyncio.gather(*(flood(network, port, stream) for stream in range(streams)))

    assert network.records[0].sent_bytes == network.records[0].received_bytes == streams * frames
    assert time.monotonic() - began >= 0.8 * streams * frames * FRAME_COST_BYTES / limits.bytes_per_s


async def test_new_connections_count_as_bytes(tmp_path):
    async with open_network(tmp_path, echo, NetworkLimits(bytes_per_s=MIB)) as (path, port, network, _):
        began = time.monotonic()
        await asyncio.gather(*(connect(path, "other.example.org", port) for _ in range(10)))

    assert network.records[0].refused == {"not_allowed": 10}
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\0\0\0\2{}", b"\0\0\0\4null", encode_frame({"kind": "hello", "nonce": "x"}), b"\0"]
)
async def test_what_is_no_request_costs_the_connection_only(tmp_path, data):
    async with open_network(tmp_path, echo) as (path, port, _, _):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(data)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert isinstance(await connect(path, HOST, port), tuple)


async def test_a_second_request_for_a_stream_changes_nothing(tmp_path):
    async def drop(message):
        pass

    async with open_network(tmp_path, echo) as (path, port, network, _):
        reader, writer = await connect(path, HOST, port)
        await network.serve(OpenStream(1, HOST, port), drop)
        network.receive(StreamData(99, b"x"))
        writer.write(b"hello")
        assert await reader.read(5) == b"hello"

    assert network.records[0].opened == 1


async def test_a_sender_that_ignores_its_window_is_an_error():
    async def drop(message):
        pass

    _, writer = await asyncio.open_connection(*await _listen())
    small = Relay(1, asyncio.StreamReader(), writer, drop)
    for _ in range(WINDOW_BYTES // FRAME_COST_BYTES):
        small.receive(StreamData(1, b"x"))
    with pytest.raises(BadMessage, match="window"):
        small.receive(StreamData(1, b"x"))
    ended = Relay(2, asyncio.StreamReader(), writer, drop)
    ended.receive(StreamData(2, b""))
    with pytest.raises(BadMessage):
        ended.receive(StreamData(2, b"x"))
    writer.close()


@pytest.mark.parametrize("amount", [FRAME_COST_BYTES, FRAME_COST_BYTES - 1, -1])
async def test_credit_for_what_was_not_sent_is_an_error(amount):
    async def drop(message):
        pass

    _, writer = await asyncio.open_connection(*await _listen())
    with pytest.raises(BadMessage, match="credit"):
        Relay(1, asyncio.StreamReader(), writer, drop).receive(StreamCredit(1, amount))
    writer.close()


async def _listen():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    return server.sockets[0].getsockname()[:2]


def test_a_sandbox_with_another_network_than_its_profile_is_not_used():
    pod = Posture("containers", "", 1, "", "none (only Unix sockets)", "", "", "", "")

    assert find_network_fault(POSTURE, expected=True) == find_network_fault(pod, expected=False) == ""
    assert "can't give it one (none (only Unix sockets))" in find_network_fault(pod, expected=True)
    assert "its profile has no network" in find_network_fault(POSTURE, expected=False)
