"""Files of a conversation: what a user attached and what a turn produced. Without its row an object is invisible."""

import re
from dataclasses import astuple, dataclass
from typing import Literal
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict

from everturn.errors import Invalid
from everturn.model.ids import ArtifactId, TurnId
from everturn.model.open_values import OpenEnum
from everturn.model.refs import check_path

_MAX_RN_CHARS = 8192
_RN = re.compile(
    r"ef:([^:]+):([^:]+):chatbot:(upload|exec|agent):([^:]+):([^:]+):([^:]+):(attachment|file|output|result):([^:]+)",
    re.ASCII,
)


class ArtifactKind(OpenEnum):
    """Where a file came from: attached by a person, part of the workspace, produced output, or a long tool result."""

    ATTACHMENT = "attachment"
    FILE = "file"
    OUTPUT = "output"
    RESULT = "result"

    @classmethod
    def stand_in(cls) -> "ArtifactKind":
        """A file of unknown kind can be read and is not part of the workspace."""
        return cls.RESULT


class Artifact(BaseModel):
    """One stored file. `size` in bytes, `sha256` in hex, `path` as a sandboxed program sees it.

    `verdict` is what the antivirus said: `clean <engine> <signature version>` or `not scanned`. A `removed` one
    brings no bytes: it says that from now on its ref is not part of the workspace.
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
    removed: bool = False


def object_key(conversation_id: str, sha256: str) -> str:
    """Where the object store keeps a file: `<conversation>/<sha256>`."""
    return f"{conversation_id}/{sha256}"


def upload_key(conversation_id: str, sha256: str, artifact_id: str) -> str:
    """Where the object store keeps what somebody sent: `<conversation>/<sha256>.<artifact>`.

    Two uploads never share an object, so whoever takes a refused one back can't take one that another is committing.
    """
    return f"{object_key(conversation_id, sha256)}.{artifact_id}"


def manifest_key(conversation_id: str, turn_id: str, round_number: int) -> str:
    """Where the object store keeps what a round's request was made of: `<conversation>/manifests/<turn>.<round>`."""
    return f"{conversation_id}/manifests/{turn_id}.{round_number}"


@dataclass(frozen=True, slots=True)
class Rn:
    """The address of a file across tenants. `stage` is upload, exec or agent; `role` is an ArtifactKind."""

    tenant: str
    project: str
    stage: str
    user_id: str
    conversation_id: str
    turn_id: str
    role: str
    path: str

    def __post_init__(self) -> None:
        check_path(self.path)
        if not _RN.fullmatch(str(self)):
            raise Invalid("A part of the rn is empty, or its stage or role is unknown.")

    def __str__(self) -> str:
        tenant, project, stage, *rest, path = (quote(part, safe="") for part in astuple(self))
        return ":".join(("ef", tenant, project, "chatbot", stage, *rest, path.replace("%2F", "/")))


def parse_rn(text: str) -> Rn:
    """Read an rn. Raises Invalid unless it is one in its canonical spelling."""
    match = _RN.fullmatch(text) if len(text) <= _MAX_RN_CHARS else None
    if match and str(rn := Rn(*map(unquote, match.groups()))) == text:
        return rn
    raise Invalid(
        "An rn is ef:<tenant>:<project>:chatbot:<stage>:<user>:<conversation>:<turn>:<role>:<path>, percent-encoded."
    )
