from contextlib import AsyncExitStack

import pytest

from everturn.memory.embedder import EmbedderUnavailable
from everturn.memory.encoders.opening import EmbedderChoice, is_minilm_installed, open_embedder

OPENAI = EmbedderChoice("openai", "text-embedding-3-small", "")
CHOICES = (
    EmbedderChoice("minilm", "", ""),
    EmbedderChoice("hashed", "", ""),
    OPENAI,
    EmbedderChoice("openai", "text-embedding-3-large", ""),
)


async def test_a_provider_without_a_key_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(EmbedderUnavailable):
        async with open_embedder(OPENAI):
            pass


async def test_encoders_have_different_names_and_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")

    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(open_embedder(choice)) for choice in CHOICES]

        assert len({embedder.name for embedder in opened}) == len(CHOICES)
        assert [embedder.lexical_only for embedder in opened] == [False, True, False, False]


def test_the_local_weights_are_installed_with_the_platform() -> None:
    assert is_minilm_installed()
