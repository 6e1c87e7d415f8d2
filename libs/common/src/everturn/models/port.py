"""A language model: messages made of parts, the limits of one request, and the port that every provider implements."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from everturn.core.errors import EverturnError

Role = Literal["system", "user", "assistant", "tool"]

FinishReason = Literal["stop", "length", "content_filter", "refusal"]

STAND_IN_PROVIDER = "everturn"

IMAGE_MIMES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that all providers accept."""
PDF_MIME = "application/pdf"

_ENCODED_BYTES = 192 * 1024
"""Encoded at once; a multiple of three, so that the results can be joined."""

Ability = Literal["tool_call", "json_mode", "json_schema", "reasoning"]
"""What a model supports, over the API through which it is called."""

CodecName = Literal["channels", "native", "json"]
"""The form in which a model acts: text between tags, tool calls of the provider's API, or one JSON object."""

FailureKind = Literal[
    "unknown",
    "rate_limited",
    "overloaded",
    "server_error",
    "provider_error",
    "connection",
    "timeout",
    "unauthorized",
    "no_credit",
    "not_found",
    "bad_request",
    "context_limit",
    "invalid_reply",
    "cut_reply",
    "reply_too_long",
]
"""The kind of a failed call, for traces, metrics and clients."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text for the model. `cache_point` asks the provider to cache everything up to and including this part."""

    text: str
    cache_point: bool = False


@dataclass(frozen=True, slots=True)
class MediaData:
    """A file as every request with it needs it. `size` and `sha256` are those of its bytes."""

    size: int
    sha256: str
    base64: bytes = field(repr=False, compare=False)


def encode_media(data: bytes) -> MediaData:
    """Takes about 2 ms for each MiB, but blocks other threads for a small part of that at a time."""
    pieces = (data[start : start + _ENCODED_BYTES] for start in range(0, len(data), _ENCODED_BYTES))
    return MediaData(len(data), sha256(data).hexdigest(), b"".join(map(b64encode, pieces)))


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image of one of IMAGE_MIMES, or a PDF. `name` is the user's name for the file."""

    mime: str
    data: MediaData
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A call that the model made, in a message of the role `assistant`. `arguments` is a JSON object."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """The result of one call, alone in a message of the role `tool`."""

    call_id: str
    text: str
    cache_point: bool = False


RecordPart = TextPart | MediaPart
"""What a timeline is rendered to."""

Part = RecordPart | ToolCallPart | ToolResultPart


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One provider message; its parts are in order. The results of an assistant's calls follow it in their order."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """A tool that the model may call. `parameters` is a JSON schema of the type `object`."""

    name: str
    """Letters, digits, underscores and dashes, at most 64."""
    description: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class JsonReply:
    """A reply that is one JSON object, which the provider enforces. `schema` is a JSON schema of the type `object`.

    With a schema the model needs the ability `json_schema`. Without one it needs `json_mode`, and the messages must say
    that the reply is JSON.
    """

    schema: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call: the messages, the maximum number of tokens of the reply, and the tools in their order."""

    messages: tuple[PromptMessage, ...]
    max_output_tokens: int
    tools: tuple[ToolDeclaration, ...] = ()
    force_tool: str = ""
    """The name of the tool that the model must call; empty if it may choose."""
    reply_form: JsonReply | None = None
    """None for text."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply, in order; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of reasoning that the provider reports separately from the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call in the provider's own form. `index` is the number of the call in the reply, from 0.

    The first piece of a call has its `name`, and `call_id` if the provider gives one; `arguments` is the next piece of
    a JSON object.
    """

    index: int
    arguments: str = ""
    name: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Tokens of one call as the provider counts them. `input_tokens` includes both cache counts.

    `estimated` means that we counted the tokens ourselves; `cost_known` is false if the model has no price (`cost_usd`
    is then 0).
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = False
    cost_known: bool = True


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """The last piece of every reply that did not raise.

    `response_model` and `response_id` are the provider's names, if it reports them.
    """

    reason: FinishReason
    usage: ModelUsage
    response_model: str | None = None
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """A call failed before its first piece and is retried in `wait_s`; `attempt` is the number of the next one."""

    wait_s: float
    attempt: int
    max_attempts: int
    reason: str
    abandoned: bool = False
    """As in the failure of the call."""


ModelPiece = TextDelta | ReasoningDelta | ToolCallDelta | ModelRetry | ReplyFinished


def count_chars(piece: ModelPiece) -> int:
    """The characters that a piece adds to its reply, which cost output tokens."""
    match piece:
        case TextDelta(text) | ReasoningDelta(text):
            return len(text)
        case ToolCallDelta():
            return len(piece.name) + len(piece.arguments)
        case ModelRetry() | ReplyFinished():
            return 0


class TokenPrices(BaseModel):
    """USD per million tokens. `input` is for tokens that neither came from the cache nor went into it; tokens that did
    cost the same if they have no price of their own."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)


class Price(TokenPrices):
    """The price of a model. The prices in `long` apply to a whole call whose input is longer than `long_above`
    tokens."""

    long_above: int | None = Field(default=None, gt=0)
    long: TokenPrices | None = None

    @model_validator(mode="after")
    def _check_long(self) -> Self:
        if (self.long is None) != (self.long_above is None):
            raise ValueError("Set both `long` and `long_above`, or neither")
        return self


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """The capabilities of a model. `context_tokens` counts input and output together."""

    name: str
    """As the server knows it."""
    context_tokens: int
    images: bool
    documents: bool
    provider: str = STAND_IN_PROVIDER
    """The provider's name in OpenTelemetry; the default is for the demo and for tests, whose calls cost nothing."""
    server_address: str = ""
    """The host that is called, for traces; empty for a test model."""
    endpoint: str = ""
    """The operator's endpoint or the cloud that serves the model; empty for the server of the model's maker."""
    max_output_tokens: int | None = None
    """The longest reply; None if it is unknown."""
    abilities: frozenset[Ability] = frozenset()
    price: Price | None = None
    """None if it is unknown."""
    context_assumed: bool = False
    """Whether neither a card nor the server states `context_tokens`."""

    @property
    def ledger_name(self) -> str:
        """Its name in the ledger, metrics and logs: two endpoints can serve models of the same name."""
        return f"{self.endpoint}:{self.name}" if self.endpoint else self.name

    @property
    def has_price(self) -> bool:
        """Whether the cost of the model's calls is known. Stand-ins cost nothing."""
        return self.provider == STAND_IN_PROVIDER or self.price is not None

    def limit_reply(self, tokens: int) -> int:
        """This number of tokens, or the longest reply or half of the context of the model if that is less."""
        return min(tokens, max(1, self.context_tokens // 2), self.max_output_tokens or tokens)


class ModelFailed(EverturnError):
    """The language model did not answer."""

    detail: str
    """A neutral sentence that is safe to show to people."""
    kind: FailureKind
    provider_text: str
    """The provider's message, for the log only: it can contain keys, addresses and markup."""
    retryable: bool
    """A retry of the same request can succeed."""
    likely_permanent: bool
    """Retryable, but a wrong setting is the more likely cause: a few retries are enough."""
    retry_after_s: float | None
    """How long the provider asked to wait."""
    partial: bool
    """The caller has already received pieces of this reply; only the caller can drop them and retry."""
    abandoned: bool = False
    """We ended the call at a time limit of ours: the provider worked on it and charges for it."""

    def __init__(
        self,
        detail: str = "",
        *,
        retryable: bool = False,
        likely_permanent: bool = False,
        retry_after_s: float | None = None,
        partial: bool = False,
        kind: FailureKind = "unknown",
        provider_text: str = "",
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.provider_text = provider_text
        self.retryable = retryable
        self.likely_permanent = likely_permanent
        self.retry_after_s = retry_after_s
        self.partial = partial


class ContextLimitExceeded(ModelFailed):
    """The request is longer than the model's context."""

    def __init__(self, detail: str = "", *, provider_text: str = "") -> None:
        super().__init__(detail, kind="context_limit", provider_text=provider_text)


class LanguageModel(Protocol):
    """A model of some provider. Implementations hold nothing of a conversation between calls."""

    @property
    def traits(self) -> ModelTraits: ...

    def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Stream one reply: ends with exactly one ReplyFinished, or raises ModelFailed.

        Use it inside `contextlib.aclosing`: closing the generator cancels the call.
        """
        ...
