"""What is sent to a language model: messages made of parts, and the limits of one request."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text for the model. `cache_point` asks the provider to cache everything up to and with this part."""

    text: str
    cache_point: bool = False


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image or a PDF. `data` are the raw bytes; `name` is what the user called the file."""

    mime: str
    data: bytes
    name: str


Part = TextPart | MediaPart
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One provider message; its parts are in order."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call: the messages, and how many tokens the reply may have."""

    messages: tuple[PromptMessage, ...]
    max_output_tokens: int
