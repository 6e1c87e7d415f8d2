"""Which pages of other sites may show the chat of an agent: `[embed]` of the configuration file."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from everturn.core.origins import read_origin

Origin = Annotated[str, Field(max_length=300), AfterValidator(read_origin)]


class EmbedRule(BaseModel):
    """`embed.tenants.<tenant>` and `embed.bundles.<bundle>`: more origins, for this tenant or this bundle."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    origins: tuple[Origin, ...] = Field(default=(), max_length=100)


class EmbedConfig(EmbedRule):
    """`embed`: the origins that may embed every bundle for every tenant, and more for single ones."""

    tenants: Mapping[str, EmbedRule] = {}
    bundles: Mapping[str, EmbedRule] = {}

    def allows(self, origin: str, *, tenant: str, bundle_id: str) -> bool:
        """Whether pages of this origin may show this bundle to people of this tenant."""
        rules = (self, self.tenants.get(tenant, self), self.bundles.get(bundle_id, self))
        return any(origin in rule.origins for rule in rules)
