"""What each turn changed in the workspace of a conversation: the truth from which its git history is built."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, Protocol

from everturn.core.errors import Invalid
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.files.model import Artifact, find_inner_path

MAX_CHANGES = 20_000
"""Of one conversation. Building them all for the first time takes about a minute."""
MAX_VERSIONS = 5 * MAX_CHANGES
"""Rows of files of one conversation that are read to publish it."""
MAX_SUBJECT_CHARS = 72
IMPORTED: Final = "Imported from "
ORIGIN_FORM: Final = rf"{IMPORTED}(\S+) at ([0-9a-f]{{40,64}})"
"""Of the description of a file that was imported. Only imports write it."""
_ORIGIN: Final = re.compile(ORIGIN_FORM)
_UNNAMED = "Change files"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file in `files/` as a turn left it; without an artifact the turn deleted it."""

    path: str
    artifact: Artifact | None = None


@dataclass(frozen=True, slots=True)
class TurnChanges:
    """What an ended turn changed, by path. `subject` is the beginning of its message, on one line."""

    turn_id: TurnId
    accepted_at: datetime
    subject: str
    changes: tuple[FileChange, ...]
    digest: str = field(init=False, compare=False, repr=False)
    """Differs if the commit of these changes would."""

    def __post_init__(self) -> None:
        # Once, where changes are loaded, in a thread: a conversation can have thousands.
        files = [f"{change.path}\0{change.artifact.sha256 if change.artifact else ''}" for change in self.changes]
        text = "\0".join([self.accepted_at.isoformat(), self.subject, *files])
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        object.__setattr__(self, "digest", digest)


@dataclass(frozen=True, slots=True)
class Origin:
    """The commit of an outside repository with which a project began."""

    url: str
    commit: str

    @property
    def mark(self) -> str:
        """The description of a file that was imported from it."""
        return f"{IMPORTED}{self.url} at {self.commit}"


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A row of a file in `files/` of a turn, of any age. `state` says what the row means for the project: what a
    checkout took out of a turn, and files that were found to be harmful, mean nothing."""

    turn_id: str
    path: str
    sha256: str
    state: Literal["written", "deleted", "nothing"]
    is_imported: bool = False


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What the turns have made of one file. `imported` is the SHA-256 of its content in the repository outside, empty
    if it was not imported from there; `digests` are those of all its contents. `is_deleted` if the last turn that
    changed it deleted it, `was_deleted` if any turn did."""

    imported: str = ""
    digests: frozenset[str] = frozenset()
    is_deleted: bool = False
    was_deleted: bool = False


class WorkspaceChanges(Protocol):
    """The changes of a conversation's turns. Raises Unavailable."""

    async def load(
        self, principal: Principal, conversation_id: ConversationId, *, also: TurnId | None = None
    ) -> tuple[TurnChanges, ...]:
        """Those of all ended turns that changed files, in the order of the turns, and those that the turn `also` has
        made so far. Files that were found to be harmful later are left out. Empty for a conversation of somebody else.

        Raises Invalid if there are more than MAX_CHANGES.
        """
        ...

    async def load_origin(self, principal: Principal, conversation_id: ConversationId) -> Origin | None:
        """Where the first file that was imported comes from, also if it was changed or deleted since."""
        ...

    async def load_known_files(
        self, principal: Principal, conversation_id: ConversationId, origin: Origin, *, also: TurnId | None = None
    ) -> Mapping[str, KnownFile]:
        """All files that the turns of `load` have ever had, by path, also those that are no change of their turn any
        more. Empty for a conversation of somebody else. Raises Invalid if there are more than MAX_VERSIONS rows."""
        ...


def build_subject(text: str) -> str:
    """The first line of a message that has printable text, shortened."""
    lines = (" ".join(char for char in line.split() if char.isprintable()) for line in text[:2_000].splitlines())
    subject = next(filter(None, lines), _UNNAMED)
    return subject if len(subject) <= MAX_SUBJECT_CHARS else f"{subject[: MAX_SUBJECT_CHARS - 1].rstrip()}\u2026"


def check_changes(count: int) -> None:
    """Raise Invalid if a conversation has too many changes for a history."""
    if count > MAX_CHANGES:
        raise Invalid(f"The turns of this conversation changed files more than {MAX_CHANGES} times.")


def fold_versions(rows: Iterable[FileVersion]) -> Mapping[str, KnownFile]:
    """What is known of each file, from all its rows, oldest first. Of a turn only the newest row of a file counts as
    its change, as in a history."""
    known: dict[str, KnownFile] = {}
    digests: defaultdict[str, set[str]] = defaultdict(set)
    last: dict[str, tuple[str, bool]] = {}
    """The last turn that has a row of a file, and whether the file was deleted before it."""
    for row in rows:
        file = known.get(row.path, KnownFile())
        turn_id, before = last.get(row.path, ("", False))
        if turn_id != row.turn_id:
            before = file.is_deleted
            last[row.path] = row.turn_id, before
        digests[row.path].add(row.sha256)
        is_deleted = before if row.state == "nothing" else row.state == "deleted"
        known[row.path] = KnownFile(
            imported=file.imported or (row.sha256 if row.is_imported else ""),
            is_deleted=is_deleted,
            was_deleted=file.was_deleted or is_deleted,
        )
    return {path: replace(file, digests=frozenset(digests[path])) for path, file in known.items()}


def check_versions(count: int) -> None:
    """Raise Invalid if a conversation has too many rows of files to publish it."""
    if count > MAX_VERSIONS:
        raise Invalid(f"The turns of this conversation wrote files more than {MAX_VERSIONS} times.")


def build_changes(newest: Iterable[Artifact]) -> tuple[FileChange, ...]:
    """The changes of a turn from the newest rows of its files."""
    return sort_changes(FileChange(find_inner_path(row), None if row.removed else row) for row in newest)


def sort_changes(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """In the order of a history: deletions first, so that a folder can take the name of a file."""
    return tuple(sorted(changes, key=lambda change: (change.artifact is not None, change.path)))


def read_origin(description: str) -> Origin | None:
    """The origin in the description of a file."""
    found = _ORIGIN.fullmatch(description)
    return Origin(found[1], found[2]) if found else None
