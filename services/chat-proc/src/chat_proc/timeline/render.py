"""Turns a timeline into provider messages: the same bytes in every request, then ANNOUNCE."""

from collections.abc import Iterator, Mapping, Sequence

from chat_proc.timeline.block_text import render_block
from chat_proc.timeline.cache_points import choose_cache_points
from chat_proc.timeline.files import IMAGE_MIMES, PDF_MIME, AttachedMedia, block_media
from chat_proc.timeline.projection import project_blocks
from everturn.model.blocks import Block
from everturn.model.llm.prompts import MediaPart, Part, PromptMessage, TextPart
from everturn.ports.language_model import ModelTraits

MAX_MEDIA_PARTS = 20
MAX_MEDIA_BYTES = 20 * 1024 * 1024
"""Of all images and PDFs in one request; later ones are named only. Anthropic takes 32 MB as base64."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_PDF_BYTES = 10 * 1024 * 1024


class PromptRenderer:
    """Renders one conversation for one model. Keeps the text of every block it has rendered; blocks never change.

    Everything but the system text is one user message with one part for each block: the model reads its own earlier
    work as a record, not as a way to write, and no provider's rule about alternating roles can shift a part.
    """

    def __init__(self, *, system_prompt: str, traits: ModelTraits) -> None:
        self._system = PromptMessage("system", (TextPart(system_prompt, cache_point=True),))
        self._traits = traits
        self._texts: dict[int, str] = {}

    def render(self, blocks: Sequence[Block], announce: str, media: Mapping[str, bytes]) -> tuple[PromptMessage, ...]:
        """The request's messages. `media` holds the bytes of images and PDFs of the last turn by sha256."""
        visible = project_blocks(blocks)
        points = choose_cache_points(visible)
        shown = _MediaBudget(self._traits, media)
        parts: list[Part] = []
        for block in visible:
            parts.append(TextPart(self._text(block), cache_point=block.seq in points))
            if block.turn_id == visible[-1].turn_id:
                parts.extend(shown.take(block))
        parts.append(TextPart(announce))
        return (self._system, PromptMessage("user", tuple(parts)))

    def _text(self, block: Block) -> str:
        text = self._texts.get(block.seq)
        if text is None:
            text = self._texts[block.seq] = render_block(block) + self._unseen(block)
        return text

    def _unseen(self, block: Block) -> str:
        unseen = [media.ref for media in block_media(block) if not _can_see(self._traits, media.mime)]
        return "(this model can't look at the file; a program can)\n\n" if unseen else ""


class _MediaBudget:
    """What one request may still attach. First come, first served: a later file never displaces an earlier one."""

    def __init__(self, traits: ModelTraits, media: Mapping[str, bytes]) -> None:
        self._traits = traits
        self._media = media
        self._parts_left = MAX_MEDIA_PARTS
        self._bytes_left = MAX_MEDIA_BYTES

    def take(self, block: Block) -> Iterator[MediaPart]:
        for item in block_media(block):
            data = self._media.get(item.sha256)
            if data is None or not self._fits(item, len(data)):
                continue
            self._parts_left -= 1
            self._bytes_left -= len(data)
            yield MediaPart(mime=item.mime, data=data, name=item.name)

    def _fits(self, item: AttachedMedia, size: int) -> bool:
        cap = MAX_PDF_BYTES if item.mime == PDF_MIME else MAX_IMAGE_BYTES
        return _can_see(self._traits, item.mime) and self._parts_left > 0 and size <= min(cap, self._bytes_left)


def _can_see(traits: ModelTraits, mime: str) -> bool:
    return traits.images if mime in IMAGE_MIMES else traits.documents and mime == PDF_MIME
