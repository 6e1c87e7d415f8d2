"""F17: a file is clean only if the antivirus says so."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from clamd_server import EICAR, STREAM_MAX_BYTES, ClamdServer
from uploads.checks import AllSound
from uploads.images import png_of_zeros
from uploads.office import office
from uploads.zips import Member, build_zip

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn_testing.core import SequentialIds
from ingress.attachments.antivirus import SCANS_OF_PERSON, VERSION_KEPT_S, WAITING, Clamd, Infected, Unscannable
from ingress.attachments.intake import CHECKED_AT_ONCE_OF_USER, FileCaps, IncomingFile, Intake
from ingress.errors import ProblemError
from ingress.metrics import IngressMetrics

BASE = "/conversations/default/default"
ANN, BEN = Principal("t", "p", "ann"), Principal("t", "p", "ben")
HEAVY_BYTES = 500_000
Refused = Callable[..., dict[str, Any]]


@pytest.fixture
def own_clamd(tmp_path: Path) -> Iterator[Callable[..., ClamdServer]]:
    started: list[ClamdServer] = []

    def start(**options: str) -> ClamdServer:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(ClamdServer(folder, **options).start())
        return started[-1]

    yield start
    for server in started:
        server.kill()


def nest(data: bytes, levels: int) -> bytes:
    for _ in range(levels):
        data = build_zip([Member("a.zip", data, method=0)])
    return data


async def test_a_clean_file_gets_a_verdict_with_the_engine(clamd: ClamdServer) -> None:
    antivirus = Clamd(clamd.url)

    verdict = await antivirus.scan(b"words" * 1_000_000)

    assert verdict.startswith("clean ClamAV ")
    assert verdict == await antivirus.load_verdict()
    await antivirus.check()


@pytest.mark.parametrize(
    "data", [EICAR, build_zip([Member("a.txt", EICAR)]), office("docx", Member("word/a.txt", EICAR)), nest(EICAR, 3)]
)
async def test_an_infected_file_is_found_plain_packed_and_nested(clamd: ClamdServer, data: bytes) -> None:
    with pytest.raises(Infected, match=r"Test\.Eicar"):
        await Clamd(clamd.url).scan(data)


@pytest.mark.parametrize(
    "data", [b"x" * (STREAM_MAX_BYTES + 1), nest(EICAR, 40), build_zip([Member("a", b"x" * 99, flags=0x801)])]
)
async def test_a_file_that_cannot_be_scanned_whole_is_not_clean(clamd: ClamdServer, data: bytes) -> None:
    with pytest.raises(Unscannable):
        await Clamd(clamd.url).scan(data)


async def test_a_clamd_without_alert_exceeds_max_is_not_trusted(
    own_clamd: Callable[..., ClamdServer],
) -> None:
    lenient = Clamd(own_clamd(AlertExceedsMax="no").url)

    with pytest.raises(Unavailable, match="AlertExceedsMax"):
        await lenient.scan(b"words")
    with pytest.raises(Unavailable, match="AlertExceedsMax"):
        await lenient.check()


async def test_a_killed_or_frozen_clamd_gives_no_verdict_until_it_is_back(
    own_clamd: Callable[..., ClamdServer],
) -> None:
    server = own_clamd()
    await Clamd(server.url).check()
    antivirus = Clamd(server.url, timeout_s=0.5)

    server.freeze()
    with pytest.raises(Unavailable):
        await antivirus.scan(b"words")
    server.kill()
    with pytest.raises(Unavailable):
        await antivirus.scan(b"words")
    with pytest.raises(Unavailable):
        await antivirus.check()
    server.start()

    assert (await Clamd(server.url).scan(b"words")).startswith("clean")


class WatchedClamd(Clamd):
    """Reports when that many files arrived, and in which order their scans ended."""

    def __init__(self, url: str, expected: int) -> None:
        super().__init__(url)
        self.all_came = asyncio.Event()
        self.done: list[bytes] = []
        self._missing = expected

    async def scan(self, data: bytes, person: str = "") -> str:
        self._missing -= 1
        if self._missing == 0:
            self.all_came.set()
        verdict = await super().scan(data, person)
        self.done.append(data)
        return verdict


async def test_heavy_files_of_one_user_do_not_delay_small_ones_of_another(clamd: ClamdServer) -> None:
    antivirus, small = WatchedClamd(clamd.url, CHECKED_AT_ONCE_OF_USER), b"c,d\n"
    nothing: Any = None
    intake = Intake(
        objects=nothing,
        antivirus=antivirus,
        structure=AllSound(),
        caps=FileCaps(1, 1, HEAVY_BYTES * 2, 5),
        ids=SequentialIds(),
        metrics=IngressMetrics(),
    )
    await antivirus.load_verdict()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        clamd.freeze()
        try:
            heavy = [group.create_task(send_heavy(intake, message)) for message in range(5 * CHECKED_AT_ONCE_OF_USER)]
            await antivirus.all_came.wait()
            other = group.create_task(intake.check_files(BEN, [IncomingFile("small.csv", "text/csv", small)]))
            await asyncio.wait(heavy[CHECKED_AT_ONCE_OF_USER:])
        finally:
            clamd.thaw()

    assert [task.result() for task in heavy] == [200] * CHECKED_AT_ONCE_OF_USER + [429] * 4 * CHECKED_AT_ONCE_OF_USER
    assert other.result()[0].verdict.startswith("clean ClamAV ")
    assert antivirus.done[-1] != small


@asynccontextmanager
async def hold_scans(clamd: ClamdServer, mark: bytes) -> AsyncGenerator["HeldScans"]:
    """An address of clamd at which scans of files that begin with `mark` last until they are released."""
    held = HeldScans(clamd, mark)
    async with await asyncio.start_server(held.serve, "127.0.0.1", 0) as server:
        held.url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield held
        finally:
            held.may_end.set()


class HeldScans:
    """Forwards connections to clamd; some answers are late, as with files that are slow to scan."""

    def __init__(self, clamd: ClamdServer, mark: bytes) -> None:
        self.url = ""
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.may_end = asyncio.Event()
        self._clamd = clamd
        self._mark = mark

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command = await reader.readuntil(b"\n")
        stream = b""
        if b"INSTREAM" in command:
            while size := int.from_bytes(head := await reader.readexactly(4)):
                stream += head + await reader.readexactly(size)
            stream += head
        if stream[4:].startswith(self._mark):
            self.begun.put_nowait(None)
            await self.may_end.wait()
        answers, asking = await asyncio.open_unix_connection(self._clamd.socket)
        asking.write(command + stream)
        writer.write(await answers.read())
        for each in (asking, writer):
            each.close()


async def test_a_light_upload_is_scanned_beside_a_flood_of_slow_scans(clamd: ClamdServer) -> None:
    async with hold_scans(clamd, b"slow") as held, asyncio.timeout(60), asyncio.TaskGroup() as group:
        antivirus = Clamd(held.url)
        await antivirus.load_verdict()
        flood = [group.create_task(antivirus.scan(b"slow %d" % n, "ann")) for n in range(WAITING)]
        for _ in range(SCANS_OF_PERSON):
            await held.begun.get()

        light = await antivirus.scan(b"a,b\n", "ben")

        assert light.startswith("clean ClamAV ")
        assert not any(task.done() for task in flood)
        assert held.begun.empty()
        held.may_end.set()


async def send_heavy(intake: Intake, message: int) -> int:
    """The status that Ann gets for a message with five files, none like another: clamd remembers what was clean."""
    rows = [f"{message},{file}\n".encode() for file in range(5)]
    files = [IncomingFile("a.csv", "text/csv", row * (HEAVY_BYTES // len(row))) for row in rows]
    try:
        await intake.check_files(ANN, files)
    except ProblemError as refused:
        return refused.status_code
    return 200


async def test_the_version_is_queried_again_after_it_expires(clamd: ClamdServer) -> None:
    now = 0.0
    antivirus = Clamd(clamd.url, monotonic=lambda: now)
    await antivirus.load_verdict()

    clamd.kill()
    try:
        assert await antivirus.load_verdict()
        now = VERSION_KEPT_S
        with pytest.raises(Unavailable):
            await antivirus.load_verdict()
    finally:
        clamd.start()


@pytest.fixture(scope="module")
def scanning(start_ingress: Callable[..., Any], clamd: ClamdServer) -> Any:
    return start_ingress(CLAMD_URL=clamd.url)


@pytest.fixture
async def client(scanning: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=scanning.url, timeout=60) as http:
        yield http
    assert scanning.alive(), scanning.log.read_text()[-4000:]


async def send(client: httpx2.AsyncClient, name: str, data: bytes) -> httpx2.Response:
    message = ("message", (None, '{"text": "see"}', "application/json"))
    return await client.post(f"{BASE}/new/messages", files=[message, ("files", (name, data, ""))])


async def test_an_infected_upload_is_refused_logged_and_counted(
    client: httpx2.AsyncClient, scanning: Any, refused: Refused
) -> None:
    body = refused(await send(client, "letter.txt", EICAR), 422)

    assert body["detail"] == "The file 'letter.txt' was rejected: it is infected (Test.Eicar.UNOFFICIAL)."
    assert [error["field"] for error in body["errors"]] == ["files.0"]
    assert 'ingress_refused_files_total{reason="infected"} 1.0' in (await client.get("/metrics")).text
    assert "Rejected an infected upload" in scanning.log.read_text()


async def test_pictures_of_many_pixels_are_refused_before_the_scan(
    client: httpx2.AsyncClient, refused: Refused, clamd: ClamdServer
) -> None:
    await send(client, "a.csv", b"a,b\n")
    bomb, before = png_of_zeros(20_000, 20_000), clamd.peak_bytes()

    answers = await asyncio.gather(*(send(client, f"{n}.png", bomb) for n in range(2)))

    for answer in answers:
        assert "20000 x 20000 pixels" in refused(answer, 422)["detail"]
    assert clamd.peak_bytes() - before < 50_000_000


async def test_a_kept_file_says_which_engine_found_it_clean(client: httpx2.AsyncClient) -> None:
    answer = await send(client, "a.csv", b"a,b\n")

    assert answer.status_code == 202, answer.text
    fetched = await client.post(f"{BASE}/fetch", json={"conversation_id": answer.json()["conversation_id"]})
    assert fetched.json()["turns"][0]["attachments"][0]["verdict"].startswith("clean ClamAV ")


async def test_without_clamd_uploads_get_a_503_and_readiness_reports_it(
    client: httpx2.AsyncClient, clamd: ClamdServer, refused: Refused
) -> None:
    clamd.kill()
    try:
        answer = await send(client, "a.csv", b"a,b\n")
        # An answer from before the kill is kept for a second: the metrics of a test just before asked for it.
        async with asyncio.timeout(30):
            while (ready := (await client.get("/readyz")).json())["status"] == "ready":
                pass
        text = await client.post(f"{BASE}/new/messages", json={"text": "hello"})
    finally:
        clamd.start()

    assert "a.csv" in refused(answer, 503)["detail"]
    assert answer.headers["retry-after"]
    assert ready["status"] == "degraded"
    assert ready["parts"]["antivirus"]["ok"] is False
    assert text.status_code == 202
    assert (await send(client, "a.csv", b"a,b\n")).status_code == 202
