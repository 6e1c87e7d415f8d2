"""Files from their store to a client: altered ones never arrive complete, and every failure is counted."""

import hashlib
from typing import Any

import pytest

from everturn.core.errors import NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.files.model import Artifact
from everturn.files.objects import CHUNK_BYTES, AlteredObject
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.stored_files import OWNER, StoredFiles
from ingress.admission.slots import OpenSlots
from ingress.files.service import CuttingResponse, FileService, Slice
from ingress.metrics import IngressMetrics

DATA = b"some text\n"


class Files:
    """One stored file of one owner."""

    def __init__(self, data: bytes = DATA, *, signs: str = "", redirects: bool = False) -> None:
        self.stored = StoredFiles(objects=MemoryObjects(signs=signs))
        self.artifact: Artifact = self.stored.put("turn_1", "a.html", data, mime="text/html")
        self.metrics = IngressMetrics()
        self.service = FileService(
            self.stored.artifacts, self.stored.objects, metrics=self.metrics, redirects=redirects
        )

    def alter(self, data: bytes) -> None:
        self.stored.objects.stored[self.artifact.object_key] = data

    async def read(self, piece: Slice | None = None) -> bytes:
        chunks = await self.service.open(self.artifact, piece or Slice(0, self.artifact.size))
        return b"".join([chunk async for chunk in chunks])

    def unread(self, reason: str) -> float | None:
        return self.metrics.registry.get_sample_value("ingress_unread_files_total", {"reason": reason})


async def test_a_file_is_found_by_its_id_and_read_whole_and_in_parts() -> None:
    files = Files()

    assert await files.service.load(OWNER, files.artifact.id) == files.artifact
    assert await files.read() == DATA
    assert await files.read(Slice(2, 5)) == DATA[2:5]


async def test_an_altered_file_is_refused_before_it_begins() -> None:
    files = Files()
    files.alter(b"other text")

    with pytest.raises(AlteredObject):
        await files.service.open(files.artifact, Slice(0, len(DATA)))

    assert files.unread("altered") == 1


async def test_a_part_that_the_store_does_not_have_any_more_is_an_altered_file() -> None:
    files = Files()
    files.alter(DATA[:4])

    with pytest.raises(AlteredObject):
        await files.read(Slice(2, 6))

    assert files.unread("altered") == 1


async def test_a_store_that_is_away_is_counted_as_such() -> None:
    files = Files()
    files.stored.objects.down = True

    with pytest.raises(Unavailable):
        await files.read()

    assert (files.unread("store"), files.unread("altered")) == (1, None)


async def test_a_row_without_its_object_is_not_found() -> None:
    files = Files()
    files.stored.objects.stored.clear()

    with pytest.raises(NotFound):
        await files.read()


async def test_clients_are_redirected_to_the_store_only_if_configured() -> None:
    sends, asks, has_none = Files(signs="https://x/"), Files(signs="https://x/", redirects=True), Files(redirects=True)

    url = await asks.service.try_redirect(asks.artifact, download=False)

    assert url == (
        f"https://x/{asks.artifact.object_key}?type=text/html; charset=utf-8"
        f'&as=attachment; filename="{asks.artifact.filename}"&for=60'
    )
    assert await sends.service.try_redirect(sends.artifact, download=False) is None
    assert await has_none.service.try_redirect(has_none.artifact, download=False) is None


async def test_a_response_whose_content_breaks_off_has_no_end() -> None:
    async def content() -> Any:
        yield b"x" * CHUNK_BYTES
        raise AlteredObject(hashlib.sha256(b"").hexdigest())

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    scope: Any = {"type": "http", "method": "GET", "asgi": {"spec_version": "2.4"}}
    slots, ann = OpenSlots(max_total=1, max_per_user=1), Principal("t", "p", "ann")
    slots.acquire(ann)
    await CuttingResponse(content(), slots=slots, principal=ann)(scope, receive, send)

    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[-1]["more_body"] is True
    assert slots.total == 0
