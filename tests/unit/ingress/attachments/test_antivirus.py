"""Which antivirus is chosen; talking to a real clamd is in the integration tests."""

import socket
import threading
from collections.abc import Iterator

import pytest

from everturn.errors import Unavailable
from ingress.attachments.antivirus import Clamd, Infected, NoScan, RefuseAll, choose_antivirus, parse_address


def choose(**changes: object) -> object:
    settings = {"clamd_url": None, "development": False, "av_scan": ""} | changes
    return choose_antivirus(**settings)  # type: ignore[arg-type]


def test_with_clamd_files_are_scanned() -> None:
    assert isinstance(choose(clamd_url="tcp://127.0.0.1:3310"), Clamd)
    assert isinstance(choose(clamd_url="unix:///run/clamd", development=True), Clamd)


def test_without_clamd_only_development_takes_files_and_says_that_nobody_looked() -> None:
    for av_scan in ("", "0"):
        assert isinstance(choose(development=True, av_scan=av_scan), NoScan)
    assert isinstance(choose(), RefuseAll)
    assert isinstance(choose(development=True, av_scan="1"), RefuseAll)


async def test_verdicts_without_a_scan_say_so_and_refusals_say_why() -> None:
    assert await NoScan().scan(b"x") == "not scanned"
    await NoScan().check()
    with pytest.raises(Unavailable, match="because"):
        await RefuseAll("because").scan(b"x")
    with pytest.raises(Unavailable, match="because"):
        await RefuseAll("because").check()


@pytest.mark.parametrize("url", ["http://x", "tcp://", "tcp://host", "unix://host/x", "unix:", "/run/clamd", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="CLAMD_URL"):
        parse_address(url)


def test_addresses_are_read() -> None:
    assert parse_address("tcp://127.0.0.1:3310") == ("127.0.0.1", 3310)
    assert parse_address("unix:///run/clamd.ctl") == "/run/clamd.ctl"


class Replies:
    """A server that reads one command, with its stream if it is INSTREAM, and replies from a list."""

    def __init__(self, replies: list[bytes]) -> None:
        self._replies = replies
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.received = bytearray()
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for reply in self._replies:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rb") as stream:
                if b"INSTREAM" in stream.readline():
                    while size := int.from_bytes(stream.read(4)):
                        self.received += stream.read(size)
                connection.sendall(reply)

    def close(self) -> None:
        self._thread.join(5)
        self._listener.close()


@pytest.fixture
def serve() -> Iterator[object]:
    servers: list[Replies] = []

    def start(*replies: bytes) -> Replies:
        servers.append(Replies(list(replies)))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


async def test_a_clean_file_arrives_whole_and_its_verdict_names_engine_and_signatures(serve: object) -> None:
    server = serve(b"stream: OK\n", b"ClamAV 1.4.2/27500/Mon Jan  5 2026\n")  # type: ignore[operator]
    data = bytes(range(256)) * 40_000

    assert await Clamd(server.url).scan(data) == "clean ClamAV 1.4.2 27500"
    assert server.received == data


async def test_an_infected_file_is_named(serve: object) -> None:
    server = serve(b"stream: Eicar-Signature FOUND\n", b"ClamAV 1.4.2\n")  # type: ignore[operator]

    with pytest.raises(Infected, match="Eicar-Signature"):
        await Clamd(server.url).scan(b"x")


@pytest.mark.parametrize(
    "reply", [b"INSTREAM size limit exceeded. ERROR\n", b"", b"stream: broken ERROR\n", b"\xff\n", b"OK\n"]
)
async def test_anything_but_a_verdict_is_no_clean_file(serve: object, reply: bytes) -> None:
    server = serve(reply, b"ClamAV 1\n")  # type: ignore[operator]

    with pytest.raises(Unavailable):
        await Clamd(server.url).scan(b"x")
    socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))).close()


async def test_nobody_there_is_no_clean_file_and_no_readiness() -> None:
    for clamd in (Clamd("tcp://127.0.0.1:9"), Clamd("unix:///nowhere/clamd")):
        with pytest.raises(Unavailable):
            await clamd.scan(b"x")
        with pytest.raises(Unavailable):
            await clamd.check()


async def test_a_pong_is_readiness(serve: object) -> None:
    server = serve(b"PONG\n")  # type: ignore[operator]

    await Clamd(server.url).check()
