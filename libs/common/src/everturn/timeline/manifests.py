"""What a worker stores of a model's input: a manifest of each round, and the system text where no earlier turn did.

Manifests do not contain texts of blocks, which can be rebuilt. They contain what is stored nowhere else.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

PREAMBLE_ROUND = 0
"""Used in a manifest's key for the system text, which all rounds of a turn begin with."""


class ManifestPart(BaseModel):
    """Base of all parts: frozen; a newer worker may write more fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ManifestSegment(ManifestPart):
    """One part of the request. A block's media follow its text; `text` is set for the tail only."""

    origin: Literal["system", "block", "media", "tail"]
    ref: str
    seq: int
    form: str
    chars: int
    tokens: int
    sha256: str
    cache_point: bool
    text: str | None = None


class Manifest(ManifestPart):
    """The request of one round as it was sent; tokens are estimates.

    `system_turn` is the turn of the conversation that stored the system text. It is None in older manifests: their own
    turn stored it.
    """

    version: Literal[1]
    turn_id: str
    round: int
    model: str
    sent_at: str
    max_output_tokens: int
    tokens: int
    system_turn: str | None = None
    segments: tuple[ManifestSegment, ...]


class Preamble(ManifestPart):
    """The system text of requests."""

    version: Literal[1] = 1
    system: str
