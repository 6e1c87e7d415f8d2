"""What a worker tells of itself once it can work."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Readiness:
    """What this worker chose, for the operator."""

    model: str
    model_why: str
    sandbox: str
    sandbox_why: str
    embedder: str
    embedder_why: str
    lexical_only: bool
    """Memory search compares words, not meanings."""

    def line(self) -> str:
        """One line of JSON, as the supervisor of processes reads it."""
        return json.dumps(
            {
                "ready": True,
                "model": self.model,
                "why": self.model_why,
                "sandbox": self.sandbox,
                "sandbox_why": self.sandbox_why,
                "embedder": self.embedder,
                "embedder_why": self.embedder_why,
                "lexical_only": self.lexical_only,
            }
        )
