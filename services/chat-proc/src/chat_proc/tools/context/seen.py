"""What the model sees at a call: which blocks in full, and which texts and files through earlier reads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from chat_proc.timeline.artifacts import block_media
from chat_proc.timeline.view import Visibility, is_shown_whole
from everturn.core.ids import TurnId
from everturn.timeline.blocks import Block, ToolResultBody
from everturn.timeline.forms import Form, try_light


class ShownText(BaseModel):
    """A text that a read showed, whole or a part of it; lives in the result's `data["shown"]`.

    `digest` is the sha256 of the whole content.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str
    digest: str
    part: bool = False


class _Showing(BaseModel):
    """The part of a result's data that is read here."""

    shown: tuple[ShownText, ...] = ()


class Seen:
    """Created once for a call."""

    def __init__(self, blocks: Sequence[Block], turn_id: TurnId) -> None:
        self._visibility = Visibility()
        for block in blocks:
            self._visibility.learn(block)
        self._blocks = blocks
        self._turn_id = turn_id

    def form_of(self, block: Block) -> Form:
        """How a block of the timeline is shown."""
        return self._visibility.choose_form(block)

    def holds_whole(self, block: Block) -> bool:
        """Whether the prompt contains all of a block's text."""
        if isinstance(block.body, ToolResultBody) and block.body.whole is not None:
            return False
        form = self.form_of(block)
        # A block without bulk is not cut in the light form.
        uncut = form is Form.FULL or (form is Form.LIGHT and try_light(block) is None)
        return uncut and is_shown_whole(block)

    def find_read(self, ref: str, digest: str) -> str | None:
        """The ref of the newest visible result in which a read showed exactly this content in full."""
        wanted = ShownText(ref=ref, digest=digest)
        for block in reversed(self._blocks):
            if wanted in shown_texts(block) and self.holds_whole(block):
                return block.ref
        return None

    def find_media(self, sha256: str) -> str | None:
        """The ref of the visible block of this turn that already attaches this image or document."""
        for block in reversed(self._blocks):
            if block.turn_id != self._turn_id:
                return None
            if self.form_of(block) is Form.FULL and any(item.sha256 == sha256 for item in block_media(block)):
                return block.ref
        return None


def shown_texts(block: Block) -> tuple[ShownText, ...]:
    """The texts that a read's result showed; empty for other blocks."""
    data = block.body.data if isinstance(block.body, ToolResultBody) else None
    return _read_shown(data) if data and "shown" in data else ()


def build_shown_data(shown: Iterable[ShownText]) -> list[dict[str, Any]]:
    """The content of `data["shown"]`."""
    return [text.model_dump(exclude_defaults=True) for text in shown]


def _read_shown(data: Mapping[str, Any]) -> tuple[ShownText, ...]:
    try:
        return _Showing.model_validate({"shown": data["shown"]}).shown
    except ValidationError:
        return ()  # another tool's data with the same key
