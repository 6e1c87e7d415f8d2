"""The fixture of chaos tests."""

from dataclasses import dataclass

from stages.stage import Stage

from everturn_local.supervision.platform import Platform
from faults.links import Links


@dataclass(frozen=True, slots=True)
class Chaos:
    """A stage whose clients and services communicate over links that a test can break."""

    stage: Stage
    links: Links

    @property
    def platform(self) -> Platform:
        return self.stage.platform
