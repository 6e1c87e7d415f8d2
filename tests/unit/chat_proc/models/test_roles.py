"""Each role has its model; what is not named takes the default one."""

import pytest

from chat_proc.models.providers import BadModelSetting, choose_roles
from chat_proc.models.roles import ModelChoice, ModelRoles, narrow_traits
from everturn.models.port import LanguageModel, ModelTraits
from everturn_testing.models.scripted_model import ScriptedModel

KEYS = {"ANTHROPIC_API_KEY": "k", "EVERTURN_MODEL": "anthropic:big"}


class Built:
    """Counts what was built."""

    def __init__(self) -> None:
        self.choices: list[ModelChoice] = []

    def build(self, choice: ModelChoice) -> LanguageModel:
        self.choices.append(choice)
        return ScriptedModel(traits=ModelTraits(choice.name, 1000, True, True))


def choose(environment: dict[str, str], roles: dict[str, str], fallback: str = "") -> tuple[ModelRoles, Built]:
    built = Built()
    return ModelRoles(choose_roles(environment, roles, fallback), built.build), built


def test_a_role_with_a_model_of_its_own_gets_it_and_the_others_the_default() -> None:
    models, _ = choose(KEYS, {"title": "anthropic:small", "summary": "offline"})

    assert models.model("title").traits.name == "small"
    assert models.model("summary").traits.name == "offline"
    assert models.model("decision").traits.name == "big"
    assert models.choice("title").why == "models.roles.title=anthropic:small"


def test_a_model_is_built_once_on_first_use() -> None:
    models, built = choose(KEYS, {"title": "anthropic:big"})
    assert built.choices == []

    assert models.model("decision") is models.model("title")

    assert len(built.choices) == 1


def test_the_offline_provider_has_no_optional_roles() -> None:
    assert choose({}, {})[0].try_model("summary") is None
    assert choose(KEYS, {"summary": "offline"})[0].try_model("summary") is None
    assert choose({"ANTHROPIC_API_KEY": "k"}, {})[0].try_model("summary") is not None


def test_a_scripted_model_has_optional_roles_only_if_configured() -> None:
    scripted = {"EVERTURN_MODEL": "scripted:/a.toml", "EVERTURN_MODE": "development"}

    assert choose(scripted, {})[0].try_model("title") is None
    assert choose(scripted, {"title": "scripted:/b.toml"})[0].try_model("title") is not None


def test_the_fallback_is_there_when_it_is_set() -> None:
    assert choose(KEYS, {})[0].fallback is None
    fallback = choose(KEYS, {}, "anthropic:old")[0].fallback
    assert fallback is not None
    assert fallback.traits.name == "old"


def test_an_unavailable_role_is_named_in_the_error() -> None:
    with pytest.raises(BadModelSetting, match=r"models\.roles\.title: 'gpt' names no provider or endpoint\."):
        choose(KEYS, {"title": "gpt"})
    with pytest.raises(BadModelSetting, match="EVERTURN_FALLBACK_MODEL names a model of openai, but OPENAI_API_KEY"):
        choose(KEYS, {}, "openai:gpt-x")


def test_the_embedding_role_is_not_read_as_a_language_model() -> None:
    assert choose(KEYS, {"embedding": "local"})[0].choice("embedding").name == "big"


def test_a_request_must_suit_the_model_and_its_fallback() -> None:
    big, small = ModelTraits("big", 200, True, True), ModelTraits("small", 100, True, False)

    narrowed = narrow_traits(ScriptedModel(traits=big), ScriptedModel(traits=small))

    assert narrowed == ModelTraits("big", 100, True, False)
    assert narrow_traits(ScriptedModel(traits=big), None) == big
