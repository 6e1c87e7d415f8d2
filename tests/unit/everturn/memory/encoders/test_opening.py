import pytest

from everturn.memory.embedder import EmbedderUnavailable
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.memory.encoders.minilm import MiniLmEmbedder
from everturn.memory.encoders.opening import EmbedderChoice, is_minilm_installed, open_embedder


def test_each_choice_opens_its_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")

    assert isinstance(open_embedder(EmbedderChoice("minilm", "", "")), MiniLmEmbedder)
    assert isinstance(open_embedder(EmbedderChoice("hashed", "", "")), HashedEmbedder)
    assert open_embedder(EmbedderChoice("openai", "text-embedding-3-small", "")).name.startswith("openai:")


def test_a_provider_without_a_key_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(EmbedderUnavailable):
        open_embedder(EmbedderChoice("openai", "text-embedding-3-small", ""))


def test_encoders_have_different_names_and_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    choices = (
        ("minilm", ""),
        ("hashed", ""),
        ("openai", "text-embedding-3-small"),
        ("openai", "text-embedding-3-large"),
    )

    opened = [open_embedder(EmbedderChoice(kind, model, "")) for kind, model in choices]  # type: ignore[arg-type]

    assert len({embedder.name for embedder in opened}) == len(choices)
    assert [embedder.lexical_only for embedder in opened] == [False, True, False, False]


def test_the_local_weights_are_installed_with_the_platform() -> None:
    assert is_minilm_installed()
