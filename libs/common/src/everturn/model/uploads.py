"""Uploads: stored files of a message before it is known whether the message becomes a turn or a signal into one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from everturn.model.artifacts import Artifact, ArtifactKind, Rn
from everturn.model.identity import Principal
from everturn.model.ids import ArtifactId, ConversationId, SignalId, TurnId
from everturn.model.refs import AttachmentRef, ExternalAttachmentRef


@dataclass(frozen=True, slots=True)
class Upload:
    """One checked and stored file. `filename` is clean and its message's only one; size in bytes, sha256 in hex.

    `begun_at` is the database's time before the first object of its message was saved. `description` says how the
    stored bytes differ from those that were sent; empty when they do not.
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
class UploadPlace:
    """Whose files these are. `signal` is the kind of a signal, as refs name it, and its id; None for the files of a
    turn's own message."""

    principal: Principal
    conversation_id: ConversationId
    turn_id: TurnId
    signal: tuple[str, SignalId] | None = None


def build_attachments(uploads: Sequence[Upload], place: UploadPlace) -> tuple[Artifact, ...]:
    """Give uploads their addresses, once the transaction that accepts them knows where they belong.

    Two signals of one turn may carry files of one name; their rns differ by the signal's id.
    """
    return tuple(_build_attachment(upload, place) for upload in uploads)


def _build_attachment(upload: Upload, place: UploadPlace) -> Artifact:
    turn, name = place.turn_id, upload.filename
    if place.signal is None:
        ref, path = str(AttachmentRef(turn, name)), f"{turn}/attachments/{name}"
        tail = name
    else:
        kind, signal_id = place.signal
        tail = f"{signal_id}/{name}"
        ref = str(ExternalAttachmentRef(turn, kind, signal_id, name))
        path = f"{turn}/external/{kind}/attachments/{signal_id}/{name}"
    return Artifact(
        id=upload.id,
        turn_id=turn,
        ref=ref,
        rn=str(_build_rn(place, tail)),
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


def _build_rn(place: UploadPlace, tail: str) -> Rn:
    who = place.principal
    return Rn(
        tenant=who.tenant,
        project=who.project,
        stage="upload",
        user_id=who.user_id,
        conversation_id=place.conversation_id,
        turn_id=place.turn_id,
        role=ArtifactKind.ATTACHMENT.value,
        path=tail,
    )
