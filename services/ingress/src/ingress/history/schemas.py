"""The git history of a conversation's workspace as clients read it."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from everturn.core.refs import MAX_PATH_BYTES
from ingress.fields import JsonBody

MAX_NAME_CHARS = 80
MAX_COMMITS = 100
MAX_FILES = 100
"""Of each commit in a list."""
MAX_ENTRIES = 2_000
"""Of a folder."""
MAX_PATHS = 50

COMMIT_EXAMPLE = "8b2f155f4d6ec5ace61571944949f85f4e1a3b9b"
CommitName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARS)]
"""A turn's id, a commit or at least seven digits of it, or HEAD."""
FilePath = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PATH_BYTES)]


class ChangedFileOut(JsonBody):
    """A file that a turn changed."""

    path: str = Field(examples=["src/report.py"])
    """Its path in the workspace."""
    change: Literal["added", "modified", "deleted"] = Field(examples=["added"])
    """What happened to it."""
    size: int | None = Field(examples=[1_204])
    """Its size in bytes after the turn; null if it was deleted."""


class CommitOut(JsonBody):
    """The commit of a turn that changed files."""

    commit: str = Field(examples=[COMMIT_EXAMPLE])
    """The name of the commit: 40 hexadecimal digits."""
    turn_id: str
    subject: str = Field(examples=["Plot the sales by region"])
    """The beginning of the turn's message, on one line."""
    accepted_at: str = Field(examples=["2026-03-01T12:00:00.000Z"])
    """When the message was accepted, in ISO 8601 (UTC)."""
    files: tuple[ChangedFileOut, ...]
    """The changed files by path; at most 100."""
    more_files: int = Field(examples=[0])
    """How many more files the turn changed."""


class CommitList(JsonBody):
    """One page of commits, newest first."""

    commits: tuple[CommitOut, ...]
    """The commits."""
    next_before: str | None = Field(examples=[None])
    """The `before` of the next page; null at the end."""


class EntryOut(JsonBody):
    """A file or a folder."""

    name: str = Field(examples=["report.py"])
    """Its name, without the folder it is in."""
    kind: Literal["file", "folder"] = Field(examples=["file"])
    """What it is."""
    size: int | None = Field(examples=[1_204])
    """The size of a file in bytes; null for a folder."""


class TreeOut(JsonBody):
    """What is in a folder of the workspace."""

    commit: str | None = Field(examples=[COMMIT_EXAMPLE])
    """The commit that was read; null if no turn has changed files yet."""
    folder: str = Field(examples=["src"])
    """The path of the folder; empty for the whole workspace."""
    entries: tuple[EntryOut, ...]
    """Its files and folders, in the order of git; at most 2,000."""
    more_entries: int = Field(examples=[0])
    """How many more entries the folder has."""


class DiffFileOut(JsonBody):
    """A file that differs between two commits."""

    path: str = Field(examples=["src/report.py"])
    """Its path in the workspace, of a deleted file the one it had."""
    old_path: str | None = Field(examples=[None])
    """The path it had before; null unless it was renamed."""
    change: Literal["added", "modified", "deleted", "renamed"] = Field(examples=["modified"])
    """What happened to it. A renamed file can be modified too."""
    added_lines: int | None = Field(examples=[3])
    """How many lines were added; null for a binary file."""
    removed_lines: int | None = Field(examples=[1])
    """How many lines were removed; null for a binary file."""
    binary: bool = Field(examples=[False])
    """Whether it is a binary file, or one of more than a mebibyte: its lines are not compared."""


class DiffOut(JsonBody):
    """The differences between two commits."""

    from_commit: str | None = Field(examples=[None])
    """The older commit; null for the empty workspace before the first one."""
    to_commit: str = Field(examples=[COMMIT_EXAMPLE])
    """The newer commit."""
    files: tuple[DiffFileOut, ...]
    """The files that differ, by path."""
    diff: str = Field(examples=["diff --git a/src/report.py b/src/report.py\n"])
    """The differences of all files as one unified diff, in the form of `git diff`; at most 1 MiB."""
