"""How files reach the model: which files it can read, the previews of texts, and the images and PDFs of a request.

1. Every file is named with its ref in the block that brought it, so that tools can read it.
2. The beginning of a text file is kept in a block of its own: `load_previews`, at the opening of a turn
   (`worker/runner.py`) and when signals are folded (`agent/loop.py`). `everturn.timeline.rendering` renders both.
3. Images and PDFs of the newest turn are attached to each of its requests, if the model can see them:
   `PromptRenderer` (`timeline/view.py`) names them in `wanted_media`, `TurnMedia` loads those that fit one request, and
   shrinks large images, and `PromptRenderer.render` attaches them behind their blocks. A file that is left out has a
   notice in its block's text. `react.read` attaches a file of an earlier turn in the same way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from everturn.core.charsets import decode_text
from everturn.core.errors import EverturnError, Unavailable
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.models.port import IMAGE_MIMES, PDF_MIME, MediaPart, ModelTraits
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

_log = structlog.get_logger(__name__)

MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_PDF_BYTES = 10 * 1024 * 1024
"""The largest images and PDFs that are sent to a model."""

_TEXT_APPLICATION = frozenset({"application/json", "application/xml", "application/yaml", "application/csv"})

PREVIEW_BYTES = 64 * 1024
"""How much of a text attachment is read for its preview."""
PREVIEW_CHARS = 4_000
"""How much of the attachment the model sees without asking."""
MAX_PREVIEWS = 20
"""For the files of one message, or of the signals of one round."""
PREVIEWS_TIMEOUT_S = 30.0
"""For loading all of them."""

MAX_MEDIA_PARTS = 20
MAX_LOADED_BYTES = 10 * 1024 * 1024
"""The largest document that the ingress accepts (MODALITY_MAX_DOC_BYTES); images are shrunk afterwards."""
MAX_REQUEST_BYTES = 20 * 1024 * 1024
"""Total of images and PDFs in one request; later ones are only named. Anthropic accepts 32 MB as base64."""
FILE_TIMEOUT_S = 60.0
"""For loading one file and shrinking it, including the wait for a free process. The largest images take about 3 s of
CPU. STALL_S in `worker/heartbeat.py` has to be longer."""
REQUEST_TIMEOUT_S = 120.0
"""For all files of one request; those that are not loaded by then are only named."""


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


async def load_previews(
    objects: Objects, artifacts: Sequence[Artifact], *, timeout_s: float = PREVIEWS_TIMEOUT_S
) -> Mapping[str, AttachmentTextBody]:
    """Previews of the first text files among these, by ref. A file that can't be read in time has none: the model can
    read it by its ref, once the store answers again."""
    previews: dict[str, AttachmentTextBody] = {}
    texts = [artifact for artifact in artifacts if is_text(artifact.mime)][:MAX_PREVIEWS]
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            for artifact in texts:
                try:
                    previews[artifact.ref] = await load_preview(objects, artifact)
                except EverturnError as error:
                    _log.warning("Could not load the preview of a file", ref=artifact.ref, error=str(error))
            return previews
    _log.warning("Loading previews took too long", timeout_s=timeout_s, loaded=len(previews), files=len(texts))
    return previews


class MediaBudget:
    """What one request can still attach. In order of the timeline: a later file never displaces an earlier one."""

    def __init__(self, attached: Sequence[MediaPart] = ()) -> None:
        self._parts_left = MAX_MEDIA_PARTS - len(attached)
        self._bytes_left = MAX_REQUEST_BYTES - sum(len(part.data) for part in attached)
        self.tokens = sum(estimate_media_tokens(part.mime, len(part.data)) for part in attached)

    def has_room(self, mime: str, size: int) -> bool:
        """Whether a file of this type and size can be attached."""
        return self._parts_left > 0 and size <= min(max_media_bytes(mime), self._bytes_left)

    def try_attach(self, item: AttachedMedia, data: bytes) -> MediaPart | None:
        """The part of the request; None if there is no room for it."""
        if not self.has_room(item.mime, len(data)):
            return None
        self._parts_left -= 1
        self._bytes_left -= len(data)
        self.tokens += estimate_media_tokens(item.mime, len(data))
        return MediaPart(mime=item.mime, data=data, name=item.name)


class TurnMedia:
    """The images and PDFs of one turn: keeps the bytes of those that its next request attaches.

    `fit` shrinks a large image; it raises Invalid if that is impossible. `note_progress` is called after each file,
    because many large ones take minutes.
    """

    def __init__(
        self,
        objects: Objects,
        fit: Callable[[bytes], Awaitable[bytes]],
        note_progress: Callable[[], None],
        *,
        file_timeout_s: float = FILE_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._objects = objects
        self._fit = fit
        self._note_progress = note_progress
        self._file_timeout_s = file_timeout_s
        self._request_timeout_s = request_timeout_s
        self._loaded: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        """Of the files that were loaded once, as they are attached."""
        self._unreadable: set[str] = set()

    @property
    def loaded(self) -> Mapping[str, bytes]:
        """The bytes by sha256: at most as many as MediaBudget allows one request."""
        return self._loaded

    async def load(self, wanted: Sequence[AttachedMedia]) -> None:
        """Load those of these that fit one request, in order, and forget all others.

        A file that can't be loaded or shrunk in time is left out, and the next request tries it again.
        """
        budget, kept = MediaBudget(), dict[str, bytes]()
        give_up_at_s = asyncio.get_running_loop().time() + self._request_timeout_s
        for item in wanted:
            data = self._loaded.get(item.sha256) or kept.get(item.sha256)
            if data is None and budget.has_room(item.mime, self._estimate_size(item)):
                data = await self._try_load(item, give_up_at_s)
            if data is not None and budget.try_attach(item, data):
                kept[item.sha256] = data
        self._loaded = kept

    def _estimate_size(self, item: AttachedMedia) -> int:
        # An image above the limit may fit after it was shrunk; before that nobody knows.
        stored = min(item.size, MAX_IMAGE_BYTES) if item.mime in IMAGE_MIMES else item.size
        return self._sizes.get(item.sha256, stored)

    async def _try_load(self, item: AttachedMedia, give_up_at_s: float) -> bytes | None:
        left_s = min(self._file_timeout_s, give_up_at_s - asyncio.get_running_loop().time())
        if item.sha256 in self._unreadable or left_s <= 0:
            return None
        try:
            async with asyncio.timeout(left_s):
                data = await self._objects.load(item.object_key, max_bytes=MAX_LOADED_BYTES)
                data = await self._fit(data) if item.mime in IMAGE_MIMES else data
        except (EverturnError, TimeoutError) as error:
            if not isinstance(error, Unavailable | TimeoutError):
                self._unreadable.add(item.sha256)
            _log.warning(
                "Could not attach a file to the request", ref=item.ref, error=str(error) or "It took too long."
            )
            return None
        finally:
            self._note_progress()
        self._sizes[item.sha256] = len(data)
        return data


def can_see(traits: ModelTraits, mime: str) -> bool:
    """Whether the model accepts files of this type."""
    return traits.images if mime in IMAGE_MIMES else traits.documents and mime == PDF_MIME
