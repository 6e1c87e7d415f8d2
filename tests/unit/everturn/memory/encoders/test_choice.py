import pytest

from everturn.memory.encoders.opening import BadEmbedderSetting, EmbedderChoice, choose_embedder

KEY = {"OPENAI_API_KEY": "sk"}


@pytest.mark.parametrize(
    ("setting", "environment", "installed", "kind", "model"),
    [
        ("auto", KEY, True, "minilm", ""),
        ("", {}, True, "minilm", ""),
        ("auto", KEY, False, "openai", "text-embedding-3-small"),
        ("auto", {"OPENAI_API_KEY": " "}, False, "hashed", ""),
        ("minilm", {}, True, "minilm", ""),
        ("openai:text-embedding-3-large", KEY, True, "openai", "text-embedding-3-large"),
        (" hashed ", KEY, True, "hashed", ""),
    ],
)
def test_the_encoder_follows_from_setting_key_and_weights(setting, environment, installed, kind, model) -> None:
    choice = choose_embedder(setting, environment, minilm_installed=installed)

    assert (choice.kind, choice.model) == (kind, model)
    assert choice.why


@pytest.mark.parametrize("setting", ["MiniLM", "openai", "openai:", "minilm:x", "hashed:", "auto:", "cohere:x"])
def test_anything_else_is_refused_with_what_is_expected(setting: str) -> None:
    with pytest.raises(BadEmbedderSetting, match="expected 'auto'"):
        choose_embedder(setting, KEY, minilm_installed=True)


def test_a_missing_requested_value_is_refused() -> None:
    with pytest.raises(BadEmbedderSetting, match="not installed"):
        choose_embedder("minilm", {}, minilm_installed=False)
    with pytest.raises(BadEmbedderSetting, match="OPENAI_API_KEY is not set"):
        choose_embedder("openai:text-embedding-3-small", {}, minilm_installed=True)


def test_the_last_resort_says_that_it_finds_words_only() -> None:
    found = choose_embedder("auto", {}, minilm_installed=False)

    assert found == EmbedderChoice("hashed", "", found.why)
    assert "words, not meanings" in found.why
