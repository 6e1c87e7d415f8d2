"""Conversations whose turns change files of the workspace, as workers do it."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from everturn.core.ids import ConversationId, TurnId
from everturn.core.refs import file_ref
from everturn.files.model import WHITEOUT_MIME, Artifact, ArtifactKind, object_key
from everturn.files.objects import Objects
from everturn.files.opening import open_objects
from everturn.postgres.pool import Database
from everturn.turns.postgres_leases import PostgresLeases
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_testing.core import SequentialIds
from everturn_testing.turns.harness import closing, commit, think

MIMES = {"py": "text/x-python", "html": "text/html", "png": "image/png", "js": "text/javascript"}


@dataclass(frozen=True)
class Workspace:
    """Runs turns of conversations of the development user."""

    chat: Any
    database: Database
    objects: Objects
    ids: SequentialIds

    async def change(self, conversation: str, text: str = "Change files.", **files: bytes | None) -> tuple[str, str]:
        """A turn that writes these files, or deletes those that are None; `__` in a name is a slash, `_` a dot."""
        named = {name.replace("__", "/").replace("_", "."): data for name, data in files.items()}
        return await self.write(conversation, named, text)

    async def write(
        self, conversation: str, files: dict[str, bytes | None], text: str = "Change files."
    ) -> tuple[str, str]:
        """The ids of the conversation and of the turn."""
        sent = await self.chat.send(text, conversation)
        leases = PostgresLeases(self.database, owner="w")
        timelines = PostgresTimelines(self.database)
        claim = await leases.try_claim(ConversationId(sent["conversation_id"]))
        assert claim is not None
        rows = [await self._save(sent, path, data) for path, data in files.items()]
        written = think(claim, "a")
        await timelines.commit(claim.lease, replace(commit(claim, written), artifacts=tuple(rows)))
        await timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, after=written))
        await leases.release(claim.lease, requeue=False)
        return sent["conversation_id"], sent["turn_id"]

    async def _save(self, sent: dict[str, Any], path: str, data: bytes | None) -> Artifact:
        content = data or b""
        digest = hashlib.sha256(content).hexdigest()
        key = object_key(sent["conversation_id"], digest)
        await self.objects.save(key, content)
        mime = MIMES.get(path.rpartition(".")[2], "text/plain")
        return Artifact(
            id=self.ids.artifact(),
            turn_id=TurnId(sent["turn_id"]),
            ref=file_ref(TurnId(sent["turn_id"]), path),
            rn="ef:x",
            kind=ArtifactKind.FILE,
            filename=path.rpartition("/")[2],
            path=f"{sent['turn_id']}/files/{path}",
            mime=WHITEOUT_MIME if data is None else mime,
            size=len(content),
            sha256=digest,
            object_key=key,
            visibility="internal",
            verdict="not scanned",
            removed=data is None,
        )


@pytest.fixture(scope="module")
def row_ids() -> SequentialIds:
    return SequentialIds()


@pytest.fixture
async def workspace(
    chat: Any, worker_database: Database, ingress_env: dict[str, str], row_ids: SequentialIds
) -> AsyncIterator[Workspace]:
    with open_objects(ingress_env["OBJECTS_URL"]) as objects:
        yield Workspace(chat, worker_database, objects, row_ids)
