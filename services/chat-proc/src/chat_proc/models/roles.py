"""Which model serves which role."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from everturn.models.port import LanguageModel, ModelTraits

OFFLINE: Final = "offline"
SCRIPTED: Final = "scripted"
"""The stand-ins for a provider."""

DECISION: Final = "decision"
SUMMARY: Final = "summary"
TITLE: Final = "title"
SYNTHESIS: Final = "synthesis"
SELECTION: Final = "selection"
PLANNING: Final = "planning"
"""The plan of a turn and the judgement of its results, by the deciding model."""
FAST: Final = "fast"
REASONING: Final = "reasoning"
HINTS: Final = (FAST, REASONING)
"""Models that a plan can give its steps to, if the operator configured them."""
ROLES: Final = (DECISION, SUMMARY, TITLE, SYNTHESIS, SELECTION, *HINTS)
"""The roles for which an operator can configure a language model."""
EMBEDDING: Final = "embedding"
"""Not a language model: it names an encoder, in the forms of EMBEDDER."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The chosen model and the reason as a sentence. `provider` is a name of `providers.py`, that of an endpoint,
    OFFLINE, or SCRIPTED, for which `name` is the path of a file."""

    provider: str
    name: str
    why: str

    @property
    def full_name(self) -> str:
        """As in EVERTURN_MODEL."""
        return OFFLINE if self.provider == OFFLINE else f"{self.provider}:{self.name}"


@dataclass(frozen=True, slots=True)
class Listed:
    """What its server's list says of a model. `problem` says, for operators, why the model may not be usable."""

    context_tokens: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RoleChoices:
    """The chosen models. `by_role` has the roles for which the operator configured one."""

    default: ModelChoice
    by_role: Mapping[str, ModelChoice] = field(default_factory=dict[str, ModelChoice])
    fallback: ModelChoice | None = None

    def find(self, role: str) -> ModelChoice:
        """The configured model for the role, otherwise that for decisions, otherwise the default."""
        return self.by_role.get(role) or self.by_role.get(DECISION, self.default)

    @property
    def used(self) -> tuple[ModelChoice, ...]:
        """The choices of all roles and the fallback, each model once."""
        choices = (*map(self.find, ROLES), self.fallback)
        return tuple({choice.full_name: choice for choice in choices if choice is not None}.values())


class ModelRoles:
    """Builds models on first use; roles with the same choice share one model. `listed` is what servers say of those
    that they were asked about, by full name."""

    def __init__(
        self,
        choices: RoleChoices,
        build: Callable[[ModelChoice], LanguageModel],
        listed: Mapping[str, Listed] | None = None,
    ) -> None:
        self.listed = listed or {}
        self._choices = choices
        self._build = build
        self._built: dict[str, LanguageModel] = {}

    def choice(self, role: str) -> ModelChoice:
        """The chosen model of the role."""
        return self._choices.find(role)

    def model(self, role: str) -> LanguageModel:
        """The model of a required role."""
        return self._model(self.choice(role))

    def try_model(self, role: str) -> LanguageModel | None:
        """The model of an optional role; None if only a stand-in is available, which writes no text of its own.

        A scripted model serves such a role only if it is configured for it.
        """
        choice = self.choice(role)
        if choice.provider == OFFLINE or (choice.provider == SCRIPTED and role not in self._choices.by_role):
            return None
        return self._model(choice)

    @property
    def hints(self) -> tuple[str, ...]:
        """The roles of HINTS for which the operator configured a model."""
        return tuple(role for role in HINTS if role in self._choices.by_role)

    @property
    def fallback(self) -> LanguageModel | None:
        """The model that decides if the deciding model has failed."""
        return None if self._choices.fallback is None else self._model(self._choices.fallback)

    @property
    def fallback_choice(self) -> ModelChoice | None:
        """The chosen model of `fallback`."""
        return self._choices.fallback

    @property
    def used(self) -> Mapping[str, LanguageModel]:
        """The models of all roles and the fallback, each once, by full name."""
        return {choice.full_name: self._model(choice) for choice in self._choices.used}

    def _model(self, choice: ModelChoice) -> LanguageModel:
        if choice.full_name not in self._built:
            self._built[choice.full_name] = self._build(choice)
        return self._built[choice.full_name]


def narrow_traits(model: LanguageModel, fallback: LanguageModel | None) -> ModelTraits:
    """The model's traits, narrowed to what its fallback also supports: a request must suit both."""
    first, second = model.traits, (fallback or model).traits
    replies = [limit for limit in (first.max_output_tokens, second.max_output_tokens) if limit is not None]
    return replace(
        first,
        context_tokens=min(first.context_tokens, second.context_tokens),
        max_output_tokens=min(replies, default=None),
        images=first.images and second.images,
        documents=first.documents and second.documents,
        abilities=first.abilities & second.abilities,
    )
