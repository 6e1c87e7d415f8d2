"""Files of a conversation: what a user attached and what a turn produced. Without its row an object is invisible."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Final, Literal
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict

from everturn.core.errors import Invalid
from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, ConversationId, SignalId, TurnId
from everturn.core.open_values import OpenEnum
from everturn.core.refs import AttachmentRef, ExternalAttachmentRef, check_path

WHITEOUT_MIME: Final = "inode/x-whiteout"
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
    def fallback(cls) -> "ArtifactKind":
        """A file of unknown kind can be read and is not part of the workspace."""
        return cls.RESULT


class Artifact(BaseModel):
    """One stored file. `size` in bytes, `sha256` in hex, `path` as a sandboxed program sees it.

    `verdict` is the antivirus result: `clean <engine> <signature version>` or `not scanned`. One that is `removed` has
    bytes; it removes its ref from the workspace. If its type is WHITEOUT_MIME, a turn has deleted the file also for
    those that follow.
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


def find_inner_path(artifact: Artifact) -> str:
    """The path of a file of the workspace below `files/` of its turn."""
    return artifact.path.partition("/files/")[2]


def object_key(conversation_id: str, sha256: str) -> str:
    """The object key of a file: `<conversation>/<sha256>`."""
    return f"{conversation_id}/{sha256}"


def upload_key(conversation_id: str, sha256: str, artifact_id: str) -> str:
    """The object key of an upload: `<conversation>/<sha256>.<artifact>`.

    Two uploads never share an object, so removing a rejected one can't remove one that another request is committing.
    """
    return f"{object_key(conversation_id, sha256)}.{artifact_id}"


def manifest_key(conversation_id: str, turn_id: str, round_number: int) -> str:
    """The object key of the manifest of a round's request: `<conversation>/manifests/<turn>.<round>`."""
    return f"{conversation_id}/manifests/{turn_id}.{round_number}"


def preamble_key(conversation_id: str, turn_id: str, sha256: str | None = None) -> str:
    """The object key of the system text and the tools with which requests of a turn begin:
    `<conversation>/manifests/<turn>.0.<hash>`. Older workers stored one for each turn, without its hash."""
    first = manifest_key(conversation_id, turn_id, 0)
    return first if sha256 is None else f"{first}.{sha256[:16]}"


def exchange_key(conversation_id: str, turn_id: str, run: str, number: int) -> str:
    """The object key of the record of a model call that a coding agent made in a run:
    `<conversation>/manifests/<turn>.x.<hash of the run>.<number>`. It is erased with the manifests of the turn."""
    digest = hashlib.sha256(run.encode()).hexdigest()
    return f"{conversation_id}/manifests/{turn_id}.x.{digest[:16]}.{number}"


def agent_state_key(conversation_id: str, turn_id: str, round_number: int, call_id: str, fence: int) -> str:
    """The object key of what a coding agent of this call has done so far, as a worker with this lease saved it:
    `<conversation>/manifests/<turn>.<round>.<call><fence>`, both in 8 hexadecimal digits. Later leases sort behind."""
    call = hashlib.sha256(call_id.encode()).hexdigest()[:8]
    return f"{manifest_key(conversation_id, turn_id, round_number)}.{call}{fence & 0xFFFFFFFF:08x}"


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
    """Parse an rn. Raises Invalid unless it is one in its canonical spelling."""
    match = _RN.fullmatch(text) if len(text) <= _MAX_RN_CHARS else None
    if match and str(rn := Rn(*map(unquote, match.groups()))) == text:
        return rn
    raise Invalid(
        "An rn is ef:<tenant>:<project>:chatbot:<stage>:<user>:<conversation>:<turn>:<role>:<path>, percent-encoded."
    )


@dataclass(frozen=True, slots=True)
class Upload:
    """One checked and stored file. `filename` is clean and unique in its message; size in bytes, sha256 in hex.

    `begun_at` is the database's time before the first object of its message was saved. `description` says how the
    stored bytes differ from those that were sent; empty when they do not.

    It exists before it is known whether the message becomes a turn or a signal to one.
    """

    id: ArtifactId
    filename: str
    mime: str
    size: int
    sha256: str
    object_key: str
    verdict: str
    begun_at: datetime
    description: str = ""


@dataclass(frozen=True, slots=True)
class UploadScope:
    """The owner of the files. `signal` is the kind of a signal, as refs name it, and its id; None for the files of a
    turn's own message."""

    principal: Principal
    conversation_id: ConversationId
    turn_id: TurnId
    signal: tuple[str, SignalId] | None = None


def build_attachments(uploads: Sequence[Upload], scope: UploadScope) -> tuple[Artifact, ...]:
    """Give uploads their addresses, once the accepting transaction knows where they belong.

    Two signals of one turn can have files of one name; their rns differ by the signal's id.
    """
    return tuple(_build_attachment(upload, scope) for upload in uploads)


def _build_attachment(upload: Upload, scope: UploadScope) -> Artifact:
    turn, name = scope.turn_id, upload.filename
    if scope.signal is None:
        ref, path = str(AttachmentRef(turn, name)), f"{turn}/attachments/{name}"
        tail = name
    else:
        kind, signal_id = scope.signal
        tail = f"{signal_id}/{name}"
        ref = str(ExternalAttachmentRef(turn, kind, signal_id, name))
        path = f"{turn}/external/{kind}/attachments/{signal_id}/{name}"
    return Artifact(
        id=upload.id,
        turn_id=turn,
        ref=ref,
        rn=str(_build_rn(scope, tail)),
        kind=ArtifactKind.ATTACHMENT,
        filename=name,
        path=path,
        mime=upload.mime,
        size=upload.size,
        sha256=upload.sha256,
        object_key=upload.object_key,
        visibility="external",
        verdict=upload.verdict,
        description=upload.description,
    )


def _build_rn(scope: UploadScope, tail: str) -> Rn:
    who = scope.principal
    return Rn(
        tenant=who.tenant,
        project=who.project,
        stage="upload",
        user_id=who.user_id,
        conversation_id=scope.conversation_id,
        turn_id=scope.turn_id,
        role=ArtifactKind.ATTACHMENT.value,
        path=tail,
    )
