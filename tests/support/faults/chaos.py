"""What a chaos test gets."""

from dataclasses import dataclass

from stages.stage import Stage

from everturn_local.supervision.platform import Platform
from faults.links import Links


@dataclass(frozen=True, slots=True)
class Chaos:
    """A stage whose clients and services talk over links that a test may break."""

    stage: Stage
    links: Links

    @property
    def platform(self) -> Platform:
        return self.stage.platform
