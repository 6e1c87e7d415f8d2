"""The workspace of a conversation as a project: every turn continues what the turns before it left.

A turn's `files/` still contains only what the turn wrote or checked out. But a ref such as `fi:<turn>.files/a.py` finds
the file as it was after that turn, whichever turn wrote it, so reading, pulling and checking out see the whole project.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from everturn.core.errors import Invalid, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, ConversationId, TurnId
from everturn.core.refs import FileRef, file_ref, parse_ref
from everturn.files.model import Artifact, Rn
from everturn.files.ports import Artifacts, WorkspaceTurn, check_page, end_of_prefix
from everturn.history.model import TurnChanges, WorkspaceChanges
from everturn.history.project import Project, count_until, fold_project

_FILES = ".files/"


async def load_project(
    changes: WorkspaceChanges, principal: Principal, conversation_id: ConversationId, last: TurnId
) -> Mapping[str, Artifact]:
    """The files after the turn `last`, or as they are if it goes on. Raises Invalid if there are too many changes, and
    Unavailable."""
    turns = await changes.load(principal, conversation_id, also=last)
    return await asyncio.to_thread(fold_project, turns, last)


class ProjectArtifacts:
    """Implements Artifacts: those of `artifacts`, and for each turn also the files that earlier turns left."""

    def __init__(self, artifacts: Artifacts, changes: WorkspaceChanges) -> None:
        self._artifacts = artifacts
        self._changes = changes

    async def load(self, principal: Principal, artifact_id: ArtifactId) -> Artifact:
        return await self._artifacts.load(principal, artifact_id)

    async def load_by_rn(self, principal: Principal, rn: Rn) -> Artifact:
        return await self._artifacts.load_by_rn(principal, rn)

    async def load_by_ref(self, principal: Principal, conversation_id: ConversationId, ref: str) -> Artifact:
        try:
            return await self._artifacts.load_by_ref(principal, conversation_id, ref)
        except NotFound:
            for artifact in await self._load_earlier(principal, conversation_id, [ref]):
                return artifact
            raise

    async def load_by_refs(
        self, principal: Principal, conversation_id: ConversationId, refs: Sequence[str]
    ) -> tuple[Artifact, ...]:
        found = await self._artifacts.load_by_refs(principal, conversation_id, refs)
        missing = set(refs).difference(artifact.ref for artifact in found)
        return (*found, *await self._load_earlier(principal, conversation_id, sorted(missing)))

    async def load_tree(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        ref_prefix: str,
        *,
        after: str = "",
        limit: int = 100,
    ) -> tuple[Artifact, ...]:
        head, dot, folder = ref_prefix.partition(_FILES)
        own = await self._artifacts.load_tree(principal, conversation_id, ref_prefix, after=after, limit=limit)
        if not dot:
            return own
        check_page(limit)
        end_of_prefix(ref_prefix)
        turn_id = TurnId(head.removeprefix("fi:"))
        project = await load_project(self._changes, principal, conversation_id, turn_id)
        if not project:
            return own
        there = (_move(each, turn_id, path) for path, each in project.items() if path.startswith(folder))
        return tuple(sorted((each for each in there if each.ref > after), key=lambda each: each.ref))[:limit]

    async def load_workspace_turns(
        self, principal: Principal, conversation_id: ConversationId, *, limit: int = 5
    ) -> tuple[WorkspaceTurn, ...]:
        """How many files the project has after each of the last turns."""
        check_page(limit)
        turns = await self._changes.load(principal, conversation_id)
        return await asyncio.to_thread(_count_files, turns, limit)

    async def load_unreferenced(self, principal: Principal, object_keys: Sequence[str]) -> tuple[str, ...]:
        return await self._artifacts.load_unreferenced(principal, object_keys)

    async def load_named_keys(self, principal: Principal, conversation_id: ConversationId) -> frozenset[str]:
        return await self._artifacts.load_named_keys(principal, conversation_id)

    async def _load_earlier(
        self, principal: Principal, conversation_id: ConversationId, refs: Sequence[str]
    ) -> list[Artifact]:
        wanted = _group_by_turn(refs)
        if not wanted:
            return []
        # Only the newest of them can still run.
        turns = await self._changes.load(principal, conversation_id, also=max(wanted))
        return await asyncio.to_thread(_find_earlier, turns, wanted)


def _find_earlier(turns: Sequence[TurnChanges], wanted: Mapping[TurnId, Sequence[str]]) -> list[Artifact]:
    """The files with these paths as they were after each of these turns."""
    project, found, done = Project(), list[Artifact](), 0
    for end, turn_id in sorted((count_until(turns, turn_id), turn_id) for turn_id in wanted):
        for turn in turns[done:end]:
            project.apply(turn)
        done = end
        found += [_move(project.files[path], turn_id, path) for path in wanted[turn_id] if path in project.files]
    return found


def _count_files(turns: Sequence[TurnChanges], limit: int) -> tuple[WorkspaceTurn, ...]:
    project, counted = Project(), list[WorkspaceTurn]()
    for turn in turns:
        project.apply(turn)
        counted.append(WorkspaceTurn(turn.turn_id, len(project.files), is_project=True))
    return tuple(counted[-limit:][::-1])


def _group_by_turn(refs: Sequence[str]) -> Mapping[TurnId, Sequence[str]]:
    """The paths below `files/` that refs name, by turn."""
    found: dict[TurnId, list[str]] = {}
    for text in refs:
        with suppress(Invalid):
            if isinstance(ref := parse_ref(text), FileRef):
                found.setdefault(TurnId(ref.turn), []).append(ref.path)
    return found


def _move(artifact: Artifact, turn_id: TurnId, path: str) -> Artifact:
    """The file as one of this turn."""
    if artifact.turn_id == turn_id:
        return artifact
    return artifact.model_copy(update={"ref": file_ref(turn_id, path), "path": f"{turn_id}/files/{path}"})
