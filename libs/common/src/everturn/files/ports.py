"""Ports for the rows of stored files and for scans; without its row an object is invisible."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from everturn.core.errors import Invalid, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, ConversationId, TurnId
from everturn.files.model import Artifact, Rn

MAX_PAGE = 1_000
"""Rows that one call returns at most."""

REVOKED = "revoked"
"""The beginning of the verdict of a file whose object is deleted."""
MAX_TARGETS = 500
"""Rows that one call returns at most."""


@dataclass(frozen=True, slots=True)
class WorkspaceTurn:
    """A turn that added files to the workspace, and how many. If the workspace is a project, the files are all of the
    project after the turn."""

    turn_id: TurnId
    file_count: int
    is_project: bool = False


class Revoked(NotFound):
    """This file was found to be harmful after it was stored, and was removed."""


class Artifacts(Protocol):
    """All calls see only the principal's own files; any other id raises NotFound.

    For a revoked file, calls for one file raise Revoked; calls for many leave it out.

    If several files have one ref, the newest counts. A `removed` row removes its ref from listings; loading by ref
    still finds the previous file.
    """

    async def load(self, principal: Principal, artifact_id: ArtifactId) -> Artifact: ...

    async def load_by_rn(self, principal: Principal, rn: Rn) -> Artifact:
        """The newest file of this rn. One that names another tenant, project or user raises NotFound."""
        ...

    async def load_by_ref(self, principal: Principal, conversation_id: ConversationId, ref: str) -> Artifact: ...

    async def load_by_refs(
        self, principal: Principal, conversation_id: ConversationId, refs: Sequence[str]
    ) -> tuple[Artifact, ...]:
        """The files with one of these refs, in any order. Raises Invalid for more than MAX_PAGE refs."""
        ...

    async def load_tree(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        ref_prefix: str,
        *,
        after: str = "",
        limit: int = 100,
    ) -> tuple[Artifact, ...]:
        """The files whose refs begin with `ref_prefix` and follow the ref `after`, by ref in order of code points.

        The prefix ends with `/` or `.`; `limit` is at most MAX_PAGE. Raises Invalid otherwise.
        """
        ...

    async def load_workspace_turns(
        self, principal: Principal, conversation_id: ConversationId, *, limit: int = 5
    ) -> tuple[WorkspaceTurn, ...]:
        """The last turns that added files to the workspace, newest first."""
        ...

    async def load_unreferenced(self, principal: Principal, object_keys: Sequence[str]) -> tuple[str, ...]:
        """Those of these keys that no artifact row names."""
        ...

    async def load_named_keys(self, principal: Principal, conversation_id: ConversationId) -> frozenset[str]:
        """The keys of this conversation's objects that artifact rows name: its own rows, and those of forks."""
        ...


def check_page(limit: int) -> None:
    """Raise Invalid unless this many rows can be loaded at once."""
    if not 0 < limit <= MAX_PAGE:
        raise Invalid(f"The limit must be between 1 and {MAX_PAGE} rows.")


def end_of_prefix(ref_prefix: str) -> str:
    """The smallest text greater than all with the prefix. Raises Invalid unless the prefix ends with / or a dot."""
    if not ref_prefix.endswith(("/", ".")):
        raise Invalid("A prefix of refs must end with a slash or a dot.")
    return ref_prefix[:-1] + chr(ord(ref_prefix[-1]) + 1)


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """A stored file. Readers can't load `revoked` ones any more, but their objects are still to be deleted."""

    id: ArtifactId
    object_key: str
    size: int
    verdict: str
    revoked: bool = False


class Scans(Protocol):
    """An operator's view across tenants. Raises Unavailable."""

    async def load_outdated(self, verdict: str | None, *, after: str = "", limit: int = 100) -> tuple[ScanTarget, ...]:
        """Files with a verdict other than this (all for None) whose ids follow `after`, by id; at most MAX_TARGETS.

        Revoked files whose object is already deleted are left out.
        """
        ...

    async def load(self, artifact_id: ArtifactId) -> ScanTarget:
        """One file. Raises NotFound, also for a revoked one whose object is deleted."""
        ...

    async def save_verdict(self, object_key: str, verdict: str) -> None:
        """Set the verdict of all files of this object."""
        ...

    async def revoke(self, object_key: str) -> int:
        """Make the files of this object unreadable. Returns how many files there were."""
        ...
