"""The images and PDFs that the model can see: their description in the blocks, and how many of them fit one request.

Does no I/O, because the folds of `timeline` use it. `attachments/reader.py` loads the bytes.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from chat_proc.attachments.policy import MAX_MEDIA_PARTS, MAX_REQUEST_BYTES, max_media_bytes
from everturn.files.model import Artifact
from everturn.models.port import IMAGE_MIMES, PDF_MIME, MediaData, MediaPart, ModelTraits
from everturn.models.tokens import estimate_media_tokens


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
        self._bytes_left = MAX_REQUEST_BYTES - sum(part.data.size for part in attached)
        self.tokens = sum(estimate_media_tokens(part.mime, part.data.size) for part in attached)

    def has_room(self, mime: str, size: int) -> bool:
        """Whether a file of this type and size can be attached."""
        return self._parts_left > 0 and size <= min(max_media_bytes(mime), self._bytes_left)

    def try_attach(self, item: AttachedMedia, data: MediaData) -> MediaPart | None:
        """The part of the request; None if there is no room for it."""
        if not self.has_room(item.mime, data.size):
            return None
        self._parts_left -= 1
        self._bytes_left -= data.size
        self.tokens += estimate_media_tokens(item.mime, data.size)
        return MediaPart(mime=item.mime, data=data, name=item.name)
