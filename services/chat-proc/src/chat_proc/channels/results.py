"""What a streamed reply leaves behind: the text of each channel, its checked value, and what went wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from pydantic import ValidationError

from chat_proc.channels.jsontext.values import JsonRefusal, read_json
from chat_proc.channels.specs import ChannelSpec
from everturn.ports.language_model import FinishReason, ModelUsage


@dataclass(frozen=True, slots=True)
class ChannelInstance:
    """One occurrence of a channel, exactly as written; `complete` if it had its closer."""

    raw: str
    complete: bool


@dataclass(frozen=True, slots=True)
class ChannelResult:
    """All occurrences of a channel.

    `raw` joins them, citations untouched; `used_sources` are the sids cited in it. `obj` is the JSON value, or the
    instance of the channel's model, of a channel that occurred once; `error` says why there is none.
    """

    raw: str = ""
    obj: object = None
    used_sources: list[int] = field(default_factory=list[int])
    instances: tuple[ChannelInstance, ...] = ()
    error: str | None = None


class ServiceError(TypedDict):
    """Why the model did not finish. What it had written until then is in the results."""

    kind: str
    message: str
    retryable: bool
    retry_after_s: float | None


class StreamMeta(TypedDict):
    """The rest about a reply. `raw` is empty unless asked for; `capped` says the reply was cut at its cap."""

    service_error: ServiceError | None
    raw: str
    outside_text: str
    finish_reason: FinishReason | None
    usage: ModelUsage | None
    model_name: str
    agent: str
    capped: bool


def build_result(spec: ChannelSpec, instances: Sequence[ChannelInstance], used_sources: Sequence[int]) -> ChannelResult:
    """The result of one channel."""
    raw = "".join(instance.raw for instance in instances)
    obj, error = (None, None)
    if spec.model is not None or spec.format == "json":
        obj, error = _read_value(spec, instances)
    return ChannelResult(raw, obj, list(used_sources), tuple(instances), error)


def _read_value(spec: ChannelSpec, instances: Sequence[ChannelInstance]) -> tuple[object, str | None]:
    if not instances:
        return None, None
    if len(instances) > 1:
        return None, f"multiple_channel_instances:{len(instances)}"
    read = read_json(instances[0].raw)
    if isinstance(read, JsonRefusal):
        return None, f"{read.fault}: {read.detail}"
    if spec.model is None:
        return read.value, None
    try:
        return spec.model.model_validate(read.value), None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or spec.name
        return None, f"invalid: {place}: {first['msg']}"
