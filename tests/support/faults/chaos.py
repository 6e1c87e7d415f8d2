"""The fixture of chaos tests."""

from dataclasses import dataclass

from platform_harness.harness import Harness

from everturn_local.supervision.platform import Platform
from faults.links import Links


@dataclass(frozen=True, slots=True)
class Chaos:
    """A harness whose clients and services communicate over links that a test can break."""

    harness: Harness
    links: Links

    @property
    def platform(self) -> Platform:
        return self.harness.platform
