"""What the model gets of files: previews and excerpts of texts, and the images and PDFs of a request.

`attachments/policy.py` describes the whole way of a file, and has the limits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import structlog

from chat_proc.attachments.charsets import decode_text
from chat_proc.attachments.excerpt import Excerpt, Range, load_excerpt
from chat_proc.attachments.fitting import PictureFitter
from chat_proc.attachments.media import AttachedMedia, MediaBudget
from chat_proc.attachments.policy import (
    BEGINNING_BYTES,
    FILE_TIMEOUT_S,
    MAX_IMAGE_BYTES,
    MAX_LOADED_BYTES,
    MAX_PREVIEWS,
    MAX_TEXT_BYTES,
    PREVIEW_CHARS,
    PREVIEWS_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    is_text,
)
from everturn.core.errors import EverturnError, Unavailable
from everturn.core.threads import call_sized
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.models.port import IMAGE_MIMES, MediaData, encode_media
from everturn.timeline.blocks import AttachmentTextBody

_log = structlog.get_logger(__name__)


class AttachmentReader:
    """Reads files for the model. A worker has one, which all turns and tools share; it owns the processes of
    `pictures`."""

    def __init__(self, objects: Objects, pictures: PictureFitter | None = None) -> None:
        self._objects = objects
        self._pictures = pictures or PictureFitter()

    def has_text(self, artifact: Artifact) -> bool:
        """Whether the model can read the file as text."""
        return is_text(artifact.mime)

    def can_read(self, artifact: Artifact) -> bool:
        """Whether `load_excerpt` can read the file: it has text and is not too large."""
        return self.has_text(artifact) and artifact.size <= MAX_TEXT_BYTES

    async def load_previews(
        self, artifacts: Sequence[Artifact], *, timeout_s: float = PREVIEWS_TIMEOUT_S
    ) -> Mapping[str, AttachmentTextBody]:
        """Previews of the first MAX_PREVIEWS text files, by ref. A file that can't be read in time has none: the model
        can read it by its ref, once the store answers again."""
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
        text, whole = await self.load_beginning(artifact)
        return AttachmentTextBody(
            filename=artifact.filename, text=text[:PREVIEW_CHARS], total_chars=len(text) if whole else None
        )

    async def load_beginning(self, artifact: Artifact) -> tuple[str, bool]:
        """The text of the first BEGINNING_BYTES of a file that `has_text`, and whether that is all of it. A character
        cut by the limit is left out. Raises NotFound, Unavailable."""
        end = min(artifact.size, BEGINNING_BYTES)
        whole = end == artifact.size
        data = b"".join([chunk async for chunk in self._objects.load_range(artifact.object_key, start=0, end=end)])
        return decode_text(data, artifact.mime, whole=whole), whole

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


class TurnMedia:
    """The images and PDFs of one turn: keeps those that its next request attaches, as requests need them.

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
        self._loaded: dict[str, MediaData] = {}
        self._sizes: dict[str, int] = {}
        """Of the files that were loaded once, as they are attached."""
        self._unreadable: set[str] = set()

    @property
    def loaded(self) -> Mapping[str, MediaData]:
        """By the sha256 of the stored files: at most as many as MediaBudget allows one request."""
        return self._loaded

    async def load(self, wanted: Sequence[AttachedMedia]) -> None:
        """Load as many of these as fit one request, in order, and forget all others.

        A file that can't be loaded or shrunk in time is left out, and the next request tries it again.
        """
        budget, kept = MediaBudget(), dict[str, MediaData]()
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

    async def _try_load(self, item: AttachedMedia, give_up_at_s: float) -> MediaData | None:
        left_s = min(self._file_timeout_s, give_up_at_s - asyncio.get_running_loop().time())
        if item.sha256 in self._unreadable or left_s <= 0:
            return None
        try:
            async with asyncio.timeout(left_s):
                data = await self._objects.load(item.object_key, max_bytes=MAX_LOADED_BYTES)
                data = await self._fit(data) if item.mime in IMAGE_MIMES else data
                encoded = await call_sized(len(data), lambda: encode_media(data))
        except (EverturnError, TimeoutError) as error:
            if not isinstance(error, Unavailable | TimeoutError):
                self._unreadable.add(item.sha256)
            _log.warning(
                "Could not attach a file to the request", ref=item.ref, error=str(error) or "It took too long."
            )
            return None
        finally:
            self._note_progress()
        self._sizes[item.sha256] = encoded.size
        return encoded
