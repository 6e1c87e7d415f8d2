"""Files of a conversation: what a user attached and what a turn produced. The row names the object; no row, no access."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from everturn.model.ids import ArtifactId, TurnId


class ArtifactKind(StrEnum):
    """Where a file came from: attached by a person, part of the workspace, or produced output."""

    ATTACHMENT = "attachment"
    FILE = "file"
    OUTPUT = "output"


class Artifact(BaseModel):
    """One stored file. `size` in bytes, `sha256` in hex, `path` as a sandboxed program sees it.

    `verdict` is what the antivirus said: `clean <engine> <signature version>` or `not scanned`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: ArtifactId
    turn_id: TurnId
    ref: str
    rn: str
    kind: ArtifactKind
    filename: str
    path: str
    mime: str
    size: int
    sha256: str
    object_key: str
    visibility: Literal["internal", "external"]
    verdict: str
    description: str = ""


def object_key(conversation_id: str, sha256: str) -> str:
    """Where the object store keeps a file: `<conversation>/<sha256>`."""
    return f"{conversation_id}/{sha256}"
