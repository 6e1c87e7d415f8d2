"""How files reach the model: which files it can read, the previews of texts, and the images and documents of a request.

Every file is named with its ref, so that tools can read it. A text file is also previewed in a block, written at the
opening of the turn (`worker/runner.py`) or when a signal is folded (`agent/signal_folding.py`). An image or PDF is
sent with each request of its turn (`timeline/render.py`) if the model can see it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from everturn.core.charsets import decode_text
from everturn.core.errors import EverturnError
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.models.port import MediaPart, ModelTraits
from everturn.models.tokens import estimate_media_tokens
from everturn.timeline.blocks import Block
from everturn.timeline.bodies import (
    AttachmentBody,
    AttachmentTextBody,
    CheckoutBody,
    EventBody,
    SignalBody,
    ToolResultBody,
)
from everturn.timeline.turns import Turn

_log = structlog.get_logger(__name__)

IMAGE_MIMES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that all providers accept."""
PDF_MIME = "application/pdf"
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_PDF_BYTES = 10 * 1024 * 1024
"""The largest images and PDFs that are sent to a model."""

_TEXT_APPLICATION = frozenset({"application/json", "application/xml", "application/yaml", "application/csv"})

PREVIEW_BYTES = 64 * 1024
"""How much of a text attachment is read for its preview."""
PREVIEW_CHARS = 4_000
"""How much of the attachment the model sees without asking."""
MAX_PREVIEWS = 20
"""For the files that signals bring in one round."""

MAX_MEDIA_PARTS = 20
MAX_LOADED_BYTES = 10 * 1024 * 1024
"""The largest document that the ingress accepts (MODALITY_MAX_DOC_BYTES); images are shrunk afterwards."""
MAX_REQUEST_BYTES = 20 * 1024 * 1024
"""Total of images and PDFs in one request; later ones are only named. Anthropic accepts 32 MB as base64."""


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


def is_text(mime: str) -> bool:
    """Whether a file of this type reads as text."""
    return mime.startswith("text/") or mime in _TEXT_APPLICATION or mime == "image/svg+xml"


def is_media(mime: str) -> bool:
    """Whether a model may be able to read such a file itself."""
    return mime in IMAGE_MIMES or mime == PDF_MIME


def max_media_bytes(mime: str) -> int:
    """The size limit for sending a file of this type, which `is_media`, to a model."""
    return MAX_PDF_BYTES if mime == PDF_MIME else MAX_IMAGE_BYTES


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
        case ToolResultBody(artifacts=artifacts) | CheckoutBody(artifacts=artifacts):
            return artifacts
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


def describe_media(artifact: Artifact) -> AttachedMedia:
    """How a tool result describes a file that it shows."""
    return AttachedMedia(
        ref=artifact.ref,
        mime=artifact.mime,
        sha256=artifact.sha256,
        name=artifact.filename,
        size=artifact.size,
        object_key=artifact.object_key,
    )


async def load_preview(objects: Objects, artifact: Artifact) -> AttachmentTextBody:
    """The beginning of a stored text file. A character cut by the byte limit is left out."""
    end = min(artifact.size, PREVIEW_BYTES)
    whole = end == artifact.size
    data = b"".join([chunk async for chunk in objects.load_range(artifact.object_key, start=0, end=end)])
    text = decode_text(data, artifact.mime, whole=whole)
    return AttachmentTextBody(
        filename=artifact.filename, text=text[:PREVIEW_CHARS], total_chars=len(text) if whole else None
    )


async def load_some_previews(
    objects: Objects, artifacts: Sequence[Artifact], *, limit_s: float = 10.0
) -> Mapping[str, AttachmentTextBody]:
    """Previews of the first text files among these, by ref. A file that can't be read in time has none."""
    previews: dict[str, AttachmentTextBody] = {}
    texts = [artifact for artifact in artifacts if is_text(artifact.mime)]
    try:
        async with asyncio.timeout(limit_s):
            for artifact in texts[:MAX_PREVIEWS]:
                previews[artifact.ref] = await load_preview(objects, artifact)
    except (EverturnError, TimeoutError) as error:
        # The file itself stays readable by its ref, once the store answers again.
        _log.warning("Could not load file previews", previews=len(previews), files=len(texts), error=str(error))
    return previews


async def load_previews(turn: Turn, objects: Objects, limit_s: float = 30.0) -> Mapping[str, AttachmentTextBody]:
    """The previews of the text attachments by ref. Raises Unavailable, NotFound or TimeoutError."""
    async with asyncio.timeout(limit_s):
        files = [*turn.request.attachments, *(file for event in turn.request.events for file in event.attachments)]
        texts = [artifact for artifact in files if is_text(artifact.mime)]
        return {artifact.ref: await load_preview(objects, artifact) for artifact in texts}


async def load_media(
    objects: Objects,
    wanted: Sequence[AttachedMedia],
    loaded: dict[str, bytes],
    fit: Callable[[bytes], Awaitable[bytes]],
) -> None:
    """Add the bytes of these images and PDFs to `loaded`, by sha256; `fit` shrinks large images. A file that can't be
    loaded is shown as its ref only."""
    for media in wanted:
        if media.sha256 in loaded:
            continue
        try:
            data = await objects.load(media.object_key, max_bytes=MAX_LOADED_BYTES)
            loaded[media.sha256] = await fit(data)
        except EverturnError as error:
            _log.warning("Could not read media", ref=media.ref, error=str(error))


class MediaBudget:
    """What one request can still attach. In order of the timeline: a later file never displaces an earlier one."""

    def __init__(self, traits: ModelTraits, attached: Sequence[MediaPart] = ()) -> None:
        self._traits = traits
        self._parts_left = MAX_MEDIA_PARTS - len(attached)
        self._bytes_left = MAX_REQUEST_BYTES - sum(len(part.data) for part in attached)
        self.tokens = sum(estimate_media_tokens(part.mime, len(part.data)) for part in attached)

    def take(self, block: Block, media: Mapping[str, bytes]) -> Iterator[MediaPart]:
        for item in block_media(block):
            data = media.get(item.sha256)
            if data is None or not self._fits(item, len(data)):
                continue
            self._parts_left -= 1
            self._bytes_left -= len(data)
            self.tokens += estimate_media_tokens(item.mime, len(data))
            yield MediaPart(mime=item.mime, data=data, name=item.name)

    def _fits(self, item: AttachedMedia, size: int) -> bool:
        room = min(max_media_bytes(item.mime), self._bytes_left)
        return can_see(self._traits, item.mime) and self._parts_left > 0 and size <= room


def can_see(traits: ModelTraits, mime: str) -> bool:
    """Whether the model accepts files of this type."""
    return traits.images if mime in IMAGE_MIMES else traits.documents and mime == PDF_MIME
