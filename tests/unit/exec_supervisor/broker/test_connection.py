"""The five requests over a connection, and the line it becomes: who owns a pair, and what a stranger can do."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from helpers.calling import Caller
from structlog.testing import capture_logs

from everturn.execution.broker_messages import Attach, Attached, KillPair, ListPairs, PairEnded, RemovePair, StartPair
from everturn.execution.framing import encode_frame
from exec_supervisor.broker.connection import BrokerConnection
from exec_supervisor.broker.engine import EngineRefused
from exec_supervisor.broker.pair import BootedPair
from exec_supervisor.broker.pairs import Pairs


class ColdSource:
    """Creates every pair on request."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs

    async def acquire(self, profile_name: str, run_id: str) -> tuple[BootedPair, bool]:
        return await self.pairs.boot(profile_name, run_id), False


Connect = Callable[[], Awaitable[Caller]]


@pytest.fixture
async def connect(pairs: Pairs) -> AsyncGenerator[Connect]:
    """Opens a connection with a broker at its other end, which has ended when the test is over."""
    running: list[asyncio.Task[None]] = []
    callers: list[Caller] = []

    async def serve(theirs: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=theirs)
        await BrokerConnection(pairs, ColdSource(pairs), reader, writer).run()
        writer.close()

    async def open_one() -> Caller:
        ours, theirs = socket.socketpair()
        running.append(asyncio.create_task(serve(theirs)))
        callers.append(Caller(*await asyncio.open_connection(sock=ours)))
        return callers[-1]

    yield open_one
    for caller in callers:
        caller.writer.close()
    async with asyncio.timeout(10):
        await asyncio.gather(*running)
    await pairs.end_all()


async def test_a_pair_is_started_attached_and_its_line_carries_bytes_both_ways(engine, connect: Connect):
    caller = await connect()
    started = await caller.start()
    attached = await caller.ask(Attach(started.pair_id))
    supervisor = engine.only

    caller.writer.write(b"down the line")
    supervisor.say_raw(b"up the line")

    assert attached == Attached()
    assert not started.warm
    assert started.executor_image == "sha256:executor"
    assert await caller.reader.readexactly(11) == b"up the line"
    assert await engine.heard.get() == b"down the line"


async def test_the_callers_end_of_file_is_the_end_of_the_supervisors_stdin(engine, connect: Connect):
    caller = await connect()
    started = await caller.start()
    await caller.ask(Attach(started.pair_id))

    caller.writer.write_eof()

    assert await caller.reader.read() == b""
    assert engine.happened["end of stdin"].is_set()
    assert await (await connect()).ask(RemovePair(started.pair_id)) == PairEnded(())


async def test_a_supervisor_that_ends_closes_the_line_after_its_last_byte(engine, connect: Connect):
    caller = await connect()
    await caller.ask(Attach((await caller.start()).pair_id))
    supervisor = engine.only

    supervisor.say_raw(b"done")
    supervisor.hang_up()

    assert await caller.reader.read() == b"done"


async def test_an_unfinished_request_times_out_and_is_logged(pairs: Pairs):
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    caller = Caller(*await asyncio.open_connection(sock=ours))
    caller.writer.write(b"\0\0\0\x20{")

    async with asyncio.timeout(10):
        with capture_logs() as log:
            await BrokerConnection(pairs, ColdSource(pairs), reader, writer, request_timeout_s=0.05).run()
        writer.close()
        left = await caller.reader.read()
    caller.writer.close()

    assert left == b""
    assert [(line["event"], line["reason"]) for line in log] == [("Closed a connection whose caller is gone", "silent")]


async def test_a_broken_connection_is_logged_and_a_closed_one_is_not(pairs: Pairs):
    with capture_logs() as log:
        for reset in (False, True):
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=theirs)
            if reset:
                reader.set_exception(ConnectionResetError())
            ours.close()
            async with asyncio.timeout(10):
                await BrokerConnection(pairs, ColdSource(pairs), reader, writer).run()
            writer.close()

    assert [(line["event"], line["reason"]) for line in log] == [("Closed a connection whose caller is gone", "broken")]


async def test_a_pair_ends_with_the_connection_that_started_it(engine, connect: Connect, pairs: Pairs):
    caller = await connect()
    started = await caller.start()

    caller.writer.close()
    await engine.happened["end of stdin"].wait()

    assert await pairs.wait_for_end(started.pair_id, force=False) == ()


async def test_a_caller_that_leaves_while_its_pair_boots_leaves_nothing(engine, connect: Connect, pairs: Pairs):
    engine.first_words = b""
    caller = await connect()
    await caller.send(StartPair("default", "run_1"))
    await engine.happened["started"].wait()

    with capture_logs() as log:
        caller.writer.close()
        await engine.happened["remove"].wait()
        await pairs.end_all()

    assert not engine.pairs
    assert ("Closed a connection whose caller is gone", "left") in [(line["event"], line.get("reason")) for line in log]


async def test_only_the_connection_that_started_a_pair_may_attach_it_and_once(connect: Connect):
    owner, stranger = await connect(), await connect()
    started = await owner.start()

    early = await owner.ask(Attach("guessed"))
    stolen = await stranger.ask(Attach(started.pair_id))
    attached = await owner.ask(Attach(started.pair_id))

    assert [answer.code for answer in (early, stolen)] == ["not_attachable", "not_attachable"]
    assert attached == Attached()


async def test_a_connection_starts_one_pair_only(connect: Connect):
    caller = await connect()
    await caller.start()

    assert (await caller.ask(StartPair("default", "run_2"))).code == "bad_message"
    assert (await caller.ask(ListPairs({}))).total == 1


async def test_a_pair_can_be_ended_with_its_id_from_any_connection(connect: Connect):
    owner, other = await connect(), await connect()
    started = await owner.start()

    killed = await other.ask(KillPair(started.pair_id))
    again = await other.ask(RemovePair(started.pair_id))

    assert killed == again == PairEnded(())
    assert (await owner.ask(Attach(started.pair_id))).code == "not_attachable"


async def test_the_list_has_no_id_by_which_a_stranger_could_end_a_pair(connect: Connect):
    owner, stranger = await connect(), await connect()
    started = await owner.start()

    listed = await stranger.ask(ListPairs({"run": "run_1"}))

    assert listed.total == 1
    assert started.pair_id not in repr(listed)
    assert (await stranger.ask(KillPair(listed.pairs[0].run_id))).code == "unknown_pair"


async def test_a_failed_start_leaves_the_connection_usable(engine, connect: Connect):
    caller = await connect()
    engine.failing["start"] = EngineRefused("No such image: exe:1")
    refused = await caller.ask(StartPair("default", "run_1"))
    engine.failing.clear()

    assert refused.code == "start_failed"
    assert "No such image: exe:1" in refused.message
    assert (await caller.start()).kind == "pair_started"


@pytest.mark.parametrize("run_id", ["", "x" * 201, "a\nb"])
async def test_a_run_needs_a_name_that_fits_a_label(connect: Connect, run_id: str):
    assert (await (await connect()).ask(StartPair("default", run_id))).code == "bad_message"


@pytest.mark.parametrize(
    "sent",
    [
        encode_frame({"kind": "start_pair", "profile": "default", "run_id": "r", "binds": ["/:/host"]}),
        encode_frame({"kind": "create_volume", "driver_opts": {"o": "bind", "device": "/"}}),
        b"GET /containers/json HTTP/1.1\r\n\r\n",
        b"\x80\0\0\x01x",
        b"\0\0\0\x02[]",
    ],
)
async def test_an_unknown_request_ends_the_connection(engine, connect: Connect, sent: bytes):
    caller = await connect()

    caller.writer.write(sent)

    assert (await caller.hear()).code == "bad_message"
    assert await caller.reader.read() == b""
    assert "start" not in engine.calls


async def test_a_second_request_before_the_answer_ends_the_connection(engine, connect: Connect):
    engine.first_words = b""
    caller = await connect()
    await caller.send(StartPair("default", "run_1"))
    await engine.happened["started"].wait()

    await caller.send(ListPairs({}))

    assert (await caller.hear()).code == "bad_message"
