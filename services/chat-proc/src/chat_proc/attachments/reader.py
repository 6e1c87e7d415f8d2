"""What the model gets of files: previews and excerpts of texts, and the images and PDFs of a request.

`attachments/policy.py` describes the whole way of a file, and has the limits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import structlog
from pydantic import BaseModel, ConfigDict

from chat_proc.attachments.excerpt import Excerpt, Range, load_excerpt
from chat_proc.attachments.fitting import PictureFitter
from chat_proc.attachments.policy import (
    FILE_TIMEOUT_S,
    MAX_IMAGE_BYTES,
    MAX_LOADED_BYTES,
    MAX_MEDIA_PARTS,
    MAX_PREVIEWS,
    MAX_REQUEST_BYTES,
    MAX_TEXT_BYTES,
    PREVIEW_BYTES,
    PREVIEW_CHARS,
    PREVIEWS_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    is_text,
    max_media_bytes,
)
from everturn.core.charsets import decode_text
from everturn.core.errors import EverturnError, Unavailable
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.models.port import IMAGE_MIMES, PDF_MIME, MediaPart, ModelTraits
from everturn.models.tokens import estimate_media_tokens
from everturn.timeline.bodies import AttachmentTextBody

_log = structlog.get_logger(__name__)


class AttachmentReader:
    """Reads files for the model. A worker has one, which all turns and tools share; it owns the processes of
    `pictures`."""

    def __init__(self, objects: Objects, pictures: PictureFitter | None = None) -> None:
        self._objects = objects
        self._pictures = pictures or PictureFitter()

    def has_text(self, artifact: Artifact) -> bool:
        """Whether the file has a text for the model."""
        return is_text(artifact.mime)

    def can_read(self, artifact: Artifact) -> bool:
        """Whether it has one that is not too large to be read here."""
        return self.has_text(artifact) and artifact.size <= MAX_TEXT_BYTES

    async def load_previews(
        self, artifacts: Sequence[Artifact], *, timeout_s: float = PREVIEWS_TIMEOUT_S
    ) -> Mapping[str, AttachmentTextBody]:
        """Previews of the first files with a text among these, by ref. A file that can't be read in time has none: the
        model can read it by its ref, once the store answers again."""
        previews: dict[str, AttachmentTextBody] = {}
        texts = [artifact for artifact in artifacts if self.has_text(artifact)][:MAX_PREVIEWS]
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for artifact in texts:
                    try:
                        previews[artifact.ref] = await self._load_preview(artifact)
                    except EverturnError as error:
                        _log.warning("Could not load the preview of a file", ref=artifact.ref, error=str(error))
                return previews
        _log.warning("Loading previews took too long", timeout_s=timeout_s, loaded=len(previews), files=len(texts))
        return previews

    async def _load_preview(self, artifact: Artifact) -> AttachmentTextBody:
        """The beginning of a text. A character cut by the byte limit is left out."""
        end = min(artifact.size, PREVIEW_BYTES)
        whole = end == artifact.size
        data = b"".join([chunk async for chunk in self._objects.load_range(artifact.object_key, start=0, end=end)])
        text = decode_text(data, artifact.mime, whole=whole)
        return AttachmentTextBody(
            filename=artifact.filename, text=text[:PREVIEW_CHARS], total_chars=len(text) if whole else None
        )

    async def load_excerpt(self, artifact: Artifact, wanted: Range, max_chars: int) -> Excerpt:
        """A part of the text of a file that the model `can_read`. Raises NotFound, Unavailable."""
        key, size, mime = artifact.object_key, artifact.size, artifact.mime
        return await load_excerpt(self._objects, key, size, wanted, max_chars, mime=mime)

    def open_media(self, tenant: str, note_progress: Callable[[], None]) -> "TurnMedia":
        """The images and PDFs of a turn that begins or is resumed."""
        return TurnMedia(self._objects, partial(self._pictures.fit, tenant=tenant), note_progress)

    async def close(self) -> None:
        """End the processes."""
        await self._pictures.close()


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


def can_see(traits: ModelTraits, mime: str) -> bool:
    """Whether the model accepts files of this type."""
    return traits.images if mime in IMAGE_MIMES else traits.documents and mime == PDF_MIME


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
