"""The files of a conversation, folded from its blocks, and which of them go to the model as images or documents."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, ValidationError

from everturn.model.artifacts import Artifact
from everturn.model.block_bodies import AttachmentBody, CheckoutBody, EventBody, SignalBody, ToolResultBody
from everturn.model.blocks import Block

IMAGE_MIMES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What both providers take as an image."""
PDF_MIME = "application/pdf"
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_PDF_BYTES = 10 * 1024 * 1024
"""The largest ones that go to a model."""


class AttachedMedia(BaseModel):
    """An image or PDF that a tool result wants shown to the model; lives in the result's `data["attached"]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str
    mime: str
    sha256: str
    name: str
    size: int
    object_key: str
    """Where its bytes are; the block that brought it into the conversation may not be loaded any more."""


class _Attaching(BaseModel):
    """The part of a tool result's data that is read here."""

    attached: tuple[AttachedMedia, ...] = ()


def is_media(mime: str) -> bool:
    """Whether a model may be able to look at such a file itself."""
    return mime in IMAGE_MIMES or mime == PDF_MIME


def max_media_bytes(mime: str) -> int:
    """How large a file of this type, which `is_media`, may be to go to a model."""
    return MAX_PDF_BYTES if mime == PDF_MIME else MAX_IMAGE_BYTES


def fold_artifacts(blocks: Iterable[Block]) -> dict[str, Artifact]:
    """All files by ref, in the order they first came; a file written again counts with its last content."""
    return {artifact.ref: artifact for block in blocks for artifact in block_artifacts(block)}


def block_artifacts(block: Block) -> tuple[Artifact, ...]:
    """The files that a block brings into the conversation."""
    match block.body:
        case AttachmentBody(artifact=artifact):
            return (artifact,)
        case SignalBody(attachments=attachments) | EventBody(attachments=attachments):
            return attachments
        case ToolResultBody(artifacts=artifacts) | CheckoutBody(artifacts=artifacts):
            return artifacts
        case _:
            return ()


def block_media(block: Block) -> tuple[AttachedMedia, ...]:
    """The images and PDFs to show with a block: what a person attached, and what a tool result asks to show."""
    match block.body:
        case AttachmentBody() | SignalBody() | EventBody():
            return tuple(describe_media(artifact) for artifact in block_artifacts(block) if is_media(artifact.mime))
        case ToolResultBody(data=dict() as data) if "attached" in data:
            try:
                return _Attaching.model_validate({"attached": data["attached"]}).attached
            except ValidationError:
                return ()  # a tool's data of the same name that means something else
        case _:
            return ()


def describe_media(artifact: Artifact) -> AttachedMedia:
    """What a tool result says of a file it wants shown."""
    return AttachedMedia(
        ref=artifact.ref,
        mime=artifact.mime,
        sha256=artifact.sha256,
        name=artifact.filename,
        size=artifact.size,
        object_key=artifact.object_key,
    )
