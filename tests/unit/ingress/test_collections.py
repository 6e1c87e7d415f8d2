"""Uploads to collections that can't be stored leave no objects, unless it is unknown whether they were stored."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from everturn.core.errors import Conflict, EverturnError, NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import CollectionId, Ids
from ingress.attachments.intake import CheckedFile, IncomingFile, SavedFiles
from ingress.collections import CollectionService

ANN = Principal("acme", "one", "ann")
SAVED = SavedFiles(())


class Parts:
    """Book, intake and inbox of a service whose book fails with `error`."""

    def __init__(self, error: EverturnError) -> None:
        self._error = error
        self.discarded: list[SavedFiles] = []

    async def add_documents(self, *_: object) -> None:
        raise self._error

    async def check_files(self, *_: object) -> tuple[CheckedFile, ...]:
        return (CheckedFile("a.txt", "text/plain", b"a", "0" * 64, "clean"),)

    async def save_files(self, *_: object) -> SavedFiles:
        return SAVED

    async def discard(self, saved: SavedFiles) -> None:
        self.discarded.append(saved)

    async def load_now(self) -> datetime:
        return datetime.now(UTC)


@pytest.mark.parametrize(
    ("error", "discarded"), [(Conflict("full"), [SAVED]), (NotFound(), [SAVED]), (Unavailable("lost"), [])]
)
async def test_what_is_stored_of_a_failed_upload(error: EverturnError, discarded: list[SavedFiles]) -> None:
    parts: Any = Parts(error)
    service = CollectionService(parts, parts, parts, cast(Ids, None))

    with pytest.raises(type(error)):
        await service.add(ANN, CollectionId("coll_1"), cast("tuple[IncomingFile, ...]", ()))

    assert parts.discarded == discarded
