"""What a worker stores of a model's input: a manifest of each round, and the system text and the tools where no earlier
turn did.

Manifests do not contain texts of blocks, which can be rebuilt. They contain what is stored nowhere else.
"""

import json
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from everturn.models.port import Role, ToolDeclaration


class ManifestPart(BaseModel):
    """Base of all parts: frozen; a newer worker may write more fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PartDescription(ManifestPart):
    """What is the same for a part in each request that contains it. `text` is set for the tail only.

    `tools` are the declarations of all tools, which come first. A `call` is one of the model's calls in the provider's
    own form; `chars` and `sha256` are those of its arguments.
    """

    origin: Literal["tools", "system", "block", "media", "tail", "call"]
    ref: str
    seq: int
    form: str
    chars: int
    sha256: str
    text: str | None = None


class ManifestSegment(PartDescription):
    """One part of the request, in the order sent. A block's media follow its text, or the results of its round."""

    tokens: int
    cache_point: bool
    role: Role | None = None
    """The role of its message. None for tools, and in older manifests: all their parts but the system text were in one
    user message."""
    call_id: str | None = None
    """Of a call or its result."""
    tool: str | None = None
    """The name under which the tool of a call was declared."""
    code_seq: int | None = None
    """The block with the program of a call."""


class ManifestHead(ManifestPart):
    """What a manifest says of the whole request; tokens are estimates.

    `system_turn` is the turn of the conversation that stored the system text and the tools. It is None in older
    manifests: their own turn stored it. `system_sha256` names them among those that the turn stored.
    """

    version: Literal[1]
    turn_id: str
    round: int
    model: str
    sent_at: str
    max_output_tokens: int
    tokens: int
    system_turn: str | None = None
    system_sha256: str | None = None


class Manifest(ManifestHead):
    """The request of one round as it was sent."""

    segments: tuple[ManifestSegment, ...]


class Preamble(ManifestPart):
    """The system text of requests, and the declarations of their tools as `encode_tools` writes them."""

    version: Literal[1] = 1
    system: str
    tools: str = ""


def encode_tools(tools: Iterable[ToolDeclaration]) -> str:
    """A JSON list of the declarations; empty without any."""
    declared = [
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)} for tool in tools
    ]
    return json.dumps(declared, ensure_ascii=False) if declared else ""
