"""Reads the git history of a conversation's workspace, within the limits of one process and one person."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal, cast

import structlog
from fastapi import Request

from everturn.conversations.model import Conversations
from everturn.core.clock import iso
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.core.refs import check_path
from everturn.files.model import Artifact
from everturn.git import MAX_LISTING_BYTES, GitMissing, GitUnavailable, RepositoryRefused
from everturn.history.repository import GitHistories, GitHistory, TurnCommit, is_possible_path
from ingress.admission.slots import OpenSlots
from ingress.errors import absent, unavailable, unprocessable
from ingress.history.schemas import (
    MAX_ENTRIES,
    MAX_FILES,
    ChangedFileOut,
    CommitList,
    CommitOut,
    DiffFileOut,
    DiffOut,
    EntryOut,
    TreeOut,
)

_log = structlog.get_logger(__name__)

READERS, READERS_OF_PERSON = 32, 6
"""Histories that this process reads at once, and how many of them for one person. Each can run git, and build the
history before. A browser opens six connections to a server."""

Change = Literal["added", "modified", "deleted"]
_CHANGES: Final[Mapping[str, Change]] = {"A": "added", "D": "deleted"}


class HistoryService:
    """Implements the endpoints of histories."""

    def __init__(self, histories: GitHistories, conversations: Conversations) -> None:
        self._histories = histories
        self._conversations = conversations
        self._slots = OpenSlots(
            max_total=READERS,
            max_per_user=READERS_OF_PERSON,
            singular="reader of a history",
            plural="requests to histories",
        )

    async def check(self, principal: Principal, conversation_id: ConversationId) -> None:
        """Raises NotFound unless the caller owns the conversation."""
        await self._conversations.load(principal, conversation_id)

    @asynccontextmanager
    async def open(self, principal: Principal, conversation_id: ConversationId) -> AsyncGenerator[GitHistory]:
        """The history of a conversation, which is built first if it is not kept. It turns what git raises in the block
        into problems, too.

        Raises NotFound, Unavailable, and problems: 404, 422, 429, 503.
        """
        with self._slots.holding(principal):
            await self.check(principal, conversation_id)
            try:
                async with self._histories.open(principal, conversation_id) as history:
                    yield history
            except NotFound as error:
                raise absent(error.detail) from error
            except RepositoryRefused as error:
                raise unprocessable(f"This history can't be read. {error.detail}") from error
            except GitMissing as error:
                raise unavailable("Git is not installed on this server, so histories can't be read.") from error
            except GitUnavailable as error:
                _log.warning("Could not read a history", conversation_id=conversation_id, error=str(error))
                raise unavailable("The history can't be read right now.") from error

    async def load_commits(
        self, principal: Principal, conversation_id: ConversationId, *, path: str, before: str, limit: int
    ) -> CommitList:
        """The newest commits before `before`, or all if it is empty; of those that changed `path`, a file or a folder,
        if it is not empty."""
        async with self.open(principal, conversation_id) as history:
            older = _find_older(history, before) if before else history.commits
            chosen = await _choose(history, older, path, limit + 1)
            shown = chosen[:limit]
            changes = await _load_changes(history, shown)
        commits = tuple(_build_commit(each, changes.get(each.commit, ())) for each in shown)
        return CommitList(commits=commits, next_before=shown[-1].turn.turn_id if len(chosen) > limit else None)

    async def load_tree(
        self, principal: Principal, conversation_id: ConversationId, *, at: str, folder: str
    ) -> TreeOut:
        """What is in a folder at a commit."""
        async with self.open(principal, conversation_id) as history:
            if at == "HEAD" and not folder and not history.commits:
                return TreeOut(commit=None, folder="", entries=(), more_entries=0)
            commit = history.find(at)
            command = ["ls-tree", "-z", "--long", "--full-tree", commit.commit]
            below = ["--", f"{_checked(folder)}/"] if folder else []
            listed = await history.folder.run([*command, *below], output_bytes=MAX_LISTING_BYTES)
        if folder and not listed:
            raise NotFound(f"The folder {folder} does not exist.")
        entries, more = await asyncio.to_thread(_read_tree, listed)
        return TreeOut(commit=commit.commit, folder=folder, entries=entries, more_entries=more)

    async def load_file(self, principal: Principal, conversation_id: ConversationId, *, at: str, path: str) -> Artifact:
        """The row of a file at a commit: its bytes are in the store of files."""
        _checked(path)
        async with self.open(principal, conversation_id) as history:
            commits = history.commits[: history.commits.index(history.find(at)) + 1]
            artifact = await asyncio.to_thread(find_artifact, commits, path)
            if artifact is None:
                raise NotFound(f"The file {path} does not exist.")
            return artifact

    async def load_diff(
        self, principal: Principal, conversation_id: ConversationId, *, old: str | None, new: str, paths: Sequence[str]
    ) -> DiffOut:
        """What changed between two commits; without `old`, since the one before."""
        async with self.open(principal, conversation_id) as history:
            to_commit = history.find(new)
            from_commit = history.find_before(to_commit) if old is None else history.find(old)
            checked = [_checked(path) for path in paths]
            diff = await history.diff(from_commit, to_commit, checked)
            files = await _load_differing(history, from_commit, to_commit, checked)
        return DiffOut(
            from_commit=from_commit.commit if from_commit else None,
            to_commit=to_commit.commit,
            files=files,
            diff=diff,
        )


def find_artifact(commits: Sequence[TurnCommit], path: str) -> Artifact | None:
    """The row of a file after these commits; None if there is no such file."""
    if not is_possible_path(path):
        return None
    for commit in reversed(commits):
        # In a turn deletions come first.
        for change in reversed(commit.turn.changes):
            if change.path == path:
                return change.artifact
            if change.artifact is not None and _replaces(change.path, path):
                return None
    return None


def _replaces(written: str, path: str) -> bool:
    """Whether writing a file removes this one, because one of them is a folder of the other."""
    return (written.startswith(f"{path}/") or path.startswith(f"{written}/")) and is_possible_path(written)


def _checked(path: str) -> str:
    """Raises Invalid for a path that no file can have."""
    check_path(path)
    return path


def _find_older(history: GitHistory, before: str) -> Sequence[TurnCommit]:
    """The commits before a commit, or before a turn, whether it still has one or not."""
    if before.startswith("turn_"):
        older = history.commits[: history.count_until(before)]
        return older[:-1] if older and older[-1].turn.turn_id == before else older
    return history.commits[: history.commits.index(history.find(before))]


async def _choose(history: GitHistory, older: Sequence[TurnCommit], path: str, count: int) -> Sequence[TurnCommit]:
    """The newest of these commits, or of those that changed a path."""
    if not path or not older:
        return older[: -count - 1 : -1]
    command = ["rev-list", "--first-parent", f"--max-count={count}", older[-1].commit, "--", _checked(path)]
    by_name = {each.commit: each for each in older}
    return [by_name[name] for name in (await history.folder.run(command)).decode().split()]


async def _load_changes(
    history: GitHistory, commits: Sequence[TurnCommit]
) -> Mapping[str, Sequence[tuple[Change, str]]]:
    """The changed files of each commit by path; without those that were written again as they were."""
    if not commits:
        return {}

    async def write_names() -> AsyncGenerator[bytes]:
        yield "".join(f"{each.commit}\n" for each in commits).encode()

    command = ["diff-tree", "--stdin", "--root", "-r", "-z", "--no-renames", "--name-status"]
    listed = await history.folder.run(command, output_bytes=MAX_LISTING_BYTES, given=write_names())
    return await asyncio.to_thread(_read_changes, listed, {each.commit for each in commits})


def _read_changes(listed: bytes, commits: set[str]) -> Mapping[str, Sequence[tuple[Change, str]]]:
    fields = iter(_split(listed))
    found: dict[str, list[tuple[Change, str]]] = {}
    current: list[tuple[Change, str]] = []
    for field in fields:
        if field in commits:
            current = found.setdefault(field, [])
        else:
            current.append((_CHANGES.get(field, "modified"), next(fields)))
    return found


def _build_commit(commit: TurnCommit, changes: Sequence[tuple[Change, str]]) -> CommitOut:
    sizes = {each.path: each.artifact.size for each in commit.turn.changes if each.artifact is not None}
    files = tuple(
        ChangedFileOut(path=path, change=change, size=None if change == "deleted" else sizes.get(path))
        for change, path in changes[:MAX_FILES]
    )
    return CommitOut(
        commit=commit.commit,
        turn_id=commit.turn.turn_id,
        subject=commit.turn.subject,
        accepted_at=iso(commit.turn.accepted_at),
        files=files,
        more_files=len(changes) - len(files),
    )


def _read_tree(listed: bytes) -> tuple[tuple[EntryOut, ...], int]:
    """The first entries of a folder, and how many there are behind them."""
    lines = _split(listed)
    entries: list[EntryOut] = []
    for line in lines[:MAX_ENTRIES]:
        head, _, path = line.partition("\t")
        _, kind, _, size = head.split()
        name = path.rpartition("/")[2]
        is_folder = kind == "tree"
        entries.append(
            EntryOut(name=name, kind="folder" if is_folder else "file", size=None if is_folder else int(size))
        )
    return tuple(entries), len(lines) - len(entries)


async def _load_differing(
    history: GitHistory, old: TurnCommit | None, new: TurnCommit, paths: Sequence[str]
) -> tuple[DiffFileOut, ...]:
    command = ["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-textconv", "--no-ext-diff", "--find-renames"]
    command += ["--root", "--no-commit-id", new.commit] if old is None else [old.commit, new.commit]
    listed = await history.folder.run([*command, "--", *paths], output_bytes=MAX_LISTING_BYTES)
    return await asyncio.to_thread(_read_differing, listed)


def _read_differing(listed: bytes) -> tuple[DiffFileOut, ...]:
    """From the raw lines, which say what happened, and the numbers of lines of the same files behind them."""
    fields = iter(_split(listed))
    kinds: dict[str, str] = {}
    files: list[DiffFileOut] = []
    for field in fields:
        if field.startswith(":"):
            kind = field.rpartition(" ")[2][:1]
            paths = [next(fields) for _ in range(2 if kind == "R" else 1)]
            kinds[paths[-1]] = kind
            continue
        added, removed, path = field.split("\t", 2)
        old_path, path = (None, path) if path else (next(fields), next(fields))
        is_binary = added == "-"
        files.append(
            DiffFileOut(
                path=path,
                old_path=old_path,
                change="renamed" if old_path is not None else _CHANGES.get(kinds.get(path, ""), "modified"),
                added_lines=None if is_binary else int(added),
                removed_lines=None if is_binary else int(removed),
                binary=is_binary,
            )
        )
    return tuple(files)


def _split(listed: bytes) -> list[str]:
    """The fields of an answer of git, which each end with a zero byte."""
    return listed.decode(errors="replace").split("\0")[:-1]


async def history_service(request: Request) -> HistoryService:
    """The service of this application."""
    return cast(HistoryService, request.app.state.histories)
