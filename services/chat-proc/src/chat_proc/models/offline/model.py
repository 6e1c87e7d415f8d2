"""A LanguageModel that needs no key: it reads the prompt, decides by rules and streams its reply like any other."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from chat_proc.models.estimate import estimate_request
from chat_proc.models.offline.decide import decide
from chat_proc.models.offline.reading import read_conversation
from chat_proc.models.offline.reply import render_reply, split_pieces
from everturn.models.port import ModelPiece, ModelRequest, ModelTraits, ModelUsage, ReplyFinished, TextDelta
from everturn.models.tokens import CharsPerToken

_TRAITS = ModelTraits(name="offline", context_tokens=200_000, images=False, documents=False)
_CHUNK_CHARS = 6


def build_model(name: str = "offline", *, piece_delay_s: float = 0.0) -> "OfflineModel":
    """The offline model; `piece_delay_s` paces its stream. It has a name parameter so that all factories are alike."""
    if name != _TRAITS.name:
        raise ValueError(f"there is only one offline model, not {name!r}")
    return OfflineModel(piece_delay_s=piece_delay_s)


class OfflineModel:
    """Deterministic: the same prompt gets the same reply. Its usage is estimated and costs nothing."""

    def __init__(
        self,
        *,
        chunk_chars: int = _CHUNK_CHARS,
        piece_delay_s: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._chunk_chars = chunk_chars
        self._piece_delay_s = piece_delay_s
        self._sleep = sleep

    @property
    def traits(self) -> ModelTraits:
        return _TRAITS

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Stream the reply in pieces of a few characters; other tasks run between two pieces."""
        text = await asyncio.to_thread(_decide, request)
        for piece in split_pieces(text, self._chunk_chars):
            yield TextDelta(piece)
            await self._sleep(self._piece_delay_s)
        ratio = CharsPerToken()
        usage = ModelUsage(estimate_request(request, ratio), ratio.tokens_for(len(text)), estimated=True)
        yield ReplyFinished("stop", usage)


def _decide(request: ModelRequest) -> str:
    return render_reply(decide(read_conversation(request)))
