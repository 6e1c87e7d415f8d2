"""Which model plays which role: the deciding one, and those of the smaller calls beside it."""

from collections.abc import Callable, Mapping

from chat_proc.models.choice import ModelChoice, choose_model, read_choice
from everturn.ports.language_model import LanguageModel, ModelTraits

DECISION = "decision"
EMBEDDING = "embedding"
"""Not a language model: it names an encoder, in the forms of EMBEDDER."""
_PLAYED = frozenset({"offline", "scripted"})


class ModelRoles:
    """Built when first asked for; roles with the same choice share one model.

    `by_role` has the roles the operator gave a model of their own.
    """

    def __init__(
        self,
        default: ModelChoice,
        build: Callable[[ModelChoice], LanguageModel],
        *,
        by_role: Mapping[str, ModelChoice] | None = None,
        fallback: ModelChoice | None = None,
    ) -> None:
        self._default = default
        self._build = build
        self._by_role = by_role or {}
        self._fallback = fallback
        self._built: dict[tuple[str, str], LanguageModel] = {}

    def choice(self, role: str) -> ModelChoice:
        """What is configured for the role, else the default."""
        return self._by_role.get(role, self._default)

    def model(self, role: str) -> LanguageModel:
        """The model of a role that can't do without one."""
        return self._model(self.choice(role))

    def try_model(self, role: str) -> LanguageModel | None:
        """The model of a role that can be left out; None where only a stand-in is there, which has no words of its own.

        A scripted model plays such a role only when it is named for it.
        """
        choice = self.choice(role)
        if choice.provider == "offline" or (choice.provider in _PLAYED and role not in self._by_role):
            return None
        return self._model(choice)

    @property
    def fallback(self) -> LanguageModel | None:
        """What decides when the deciding model has failed."""
        return None if self._fallback is None else self._model(self._fallback)

    def _model(self, choice: ModelChoice) -> LanguageModel:
        key = (choice.provider, choice.name)
        if key not in self._built:
            self._built[key] = self._build(choice)
        return self._built[key]


def choose_roles(
    environment: Mapping[str, str],
    roles: Mapping[str, str],
    fallback: str,
    build: Callable[[ModelChoice], LanguageModel],
) -> ModelRoles:
    """The models for these variables and the roles of the configuration file; raises BadModelSetting."""
    by_role = {
        role: read_choice(f"models.roles.{role}", setting, environment)
        for role, setting in roles.items()
        if role != EMBEDDING
    }
    second = read_choice("EVERTURN_FALLBACK_MODEL", fallback, environment) if fallback.strip() else None
    return ModelRoles(choose_model(environment), build, by_role=by_role, fallback=second)


def narrow_traits(model: LanguageModel, fallback: LanguageModel | None) -> ModelTraits:
    """Those of the model, narrowed to what its fallback can take too: a request must suit both."""
    first, second = model.traits, (fallback or model).traits
    return ModelTraits(
        name=first.name,
        context_tokens=min(first.context_tokens, second.context_tokens),
        images=first.images and second.images,
        documents=first.documents and second.documents,
        provider=first.provider,
        server_address=first.server_address,
    )
