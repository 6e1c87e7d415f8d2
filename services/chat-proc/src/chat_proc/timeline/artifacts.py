"""The files that blocks bring into a conversation, and those of them that the model is to see."""

from collections.abc import Iterable

from pydantic import BaseModel, ValidationError

from chat_proc.attachments.media import AttachedMedia, describe_media
from chat_proc.attachments.policy import is_media
from everturn.files.model import Artifact
from everturn.timeline.blocks import (
    AttachmentBody,
    Block,
    CheckoutBody,
    DurableStepBody,
    EventBody,
    SignalBody,
    ToolResultBody,
)


class _Attaching(BaseModel):
    """The part of a tool result's data that is read here."""

    attached: tuple[AttachedMedia, ...] = ()


def fold_artifacts(blocks: Iterable[Block]) -> dict[str, Artifact]:
    """All files by ref, in order of first appearance; a rewritten file has its last content."""
    return {artifact.ref: artifact for block in blocks for artifact in block_artifacts(block)}


def block_artifacts(block: Block) -> tuple[Artifact, ...]:
    """The files that a block brings into the conversation."""
    match block.body:
        case AttachmentBody(artifact=artifact):
            return (artifact,)
        case SignalBody(attachments=attachments) | EventBody(attachments=attachments):
            return attachments
        case ToolResultBody(artifacts=files) | CheckoutBody(artifacts=files) | DurableStepBody(artifacts=files):
            return files
        case _:
            return ()


def block_media(block: Block) -> tuple[AttachedMedia, ...]:
    """The images and PDFs to show with a block: attached by a person, or shown by a tool result."""
    match block.body:
        case AttachmentBody() | SignalBody() | EventBody():
            return tuple(describe_media(artifact) for artifact in block_artifacts(block) if is_media(artifact.mime))
        case ToolResultBody(data=dict() as data) if "attached" in data:
            try:
                return _Attaching.model_validate({"attached": data["attached"]}).attached
            except ValidationError:
                return ()  # a tool's data with the same key but another meaning
        case _:
            return ()
