"""Calls of models by workflows and tools, which the worker makes for their turn."""

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError

from everturn_sdk.channels import (
    ChannelResult,
    ChannelSpec,
    ChannelSubscribers,
    DeltaDelivery,
    StreamMeta,
    read_result,
)
from everturn_sdk.protocol import Question

_Model = TypeVar("_Model", bound=BaseModel)
_inside: ContextVar[str] = ContextVar("inside", default="")
"""What runs now, if nothing durable and no call of a model can begin in it: the run would wait for itself."""


class ModelPort(Protocol):
    """How a running workflow or tool reaches its worker. Implemented by the host."""

    async def ask(
        self,
        what: Question,
        arguments: Mapping[str, Any],
        deliver: Callable[[Any, bool], Awaitable[None]] | None = None,
        content: bytes = b"",
    ) -> Any:
        """The answer, after `deliver` has got each delta before it. Raises WorkflowError in a workflow, ToolError in a
        tool."""
        ...

    def log(self, text: str) -> None:
        """For the operator."""
        ...


class Models:
    """The models of the bundle: `self.models` in a workflow, `context.models` in a tool. Calls count towards the limits
    of the turn. In a turn, the workflow can make 20 calls of each kind, and all tools together 20 more.

    The calls of a workflow are recorded. Those of a tool are not: `key` has no effect, a tool that is repeated after a
    crash calls the model again, ToolError is raised in place of WorkflowError, and clients see nothing of the reply.
    Only `emit` and `subscribers` get its deltas.
    """

    def __init__(
        self,
        port: Callable[[], ModelPort],
        choose_key: Callable[[str, str | None], str],
        failure: Callable[[str], Exception],
    ) -> None:
        self._port = port
        self._choose_key = choose_key
        self._failure = failure

    async def stream_with_channels(
        self,
        *,
        messages: Sequence[Mapping[str, object]],
        role: str = "",
        channels: Sequence[ChannelSpec],
        emit: Callable[..., Any] | None = None,
        agent: str = "",
        artifact_name: str | None = None,
        sources_list: Iterable[Mapping[str, object]] | None = None,
        subscribers: ChannelSubscribers | None = None,
        return_full_raw: bool = False,
        composite_cfg: Mapping[str, str] | None = None,
        composite_channel: str | None = None,
        composite_marker: str = "canvas",
        max_output_tokens: int = 16_000,
        key: str | None = None,
    ) -> tuple[dict[str, ChannelResult], StreamMeta]:
        """Call a model once, and show what it writes in each channel under the marker of the channel.

        `messages` are `{"role": "system" | "user" | "assistant", "content": text}`. `role` is `fast` or `reasoning` for
        the model that is configured for it; any other name is the agent's own model. `emit` gets each delta that is
        shown, `subscribers` those of their channel, shown or not; neither can begin a step or another call. The fields
        of `composite_channel`, a JSON object, are shown under `composite_marker`: those in `composite_cfg`, or all.
        `sources_list` are the sources for citations, by default those of the conversation.

        The reply is recorded under the key, by default the number of the call in `run`: if `run` is executed again, the
        recorded reply is returned, and nothing is shown twice. If the model fails, `service_error` of the second value
        says why. Raises WorkflowError if the call is not possible, and as `step` does.
        """
        check_outside("stream_with_channels", self._failure)
        port = self._port()
        delivery = None
        if emit is not None or subscribers is not None:
            delivery = DeltaDelivery(emit, subscribers, port.log)

        async def deliver(delta: Any, is_field: bool) -> None:
            with run_inside("a function for deltas"):
                await cast("DeltaDelivery", delivery).deliver(delta, is_field=is_field)

        asked = {
            "key": self._choose_key("models.stream_with_channels", key),
            "messages": [dict(message) for message in messages],
            "role": role,
            "channels": [
                {
                    "name": spec.name,
                    "format": spec.format,
                    "replace_citations": spec.replace_citations,
                    "emit_marker": spec.emit_marker,
                    "has_value": spec.model is not None or spec.format == "json",
                }
                for spec in channels
            ],
            "agent": agent,
            "artifact_name": artifact_name,
            "sources_list": None if sources_list is None else [dict(row) for row in sources_list],
            "return_full_raw": return_full_raw,
            "composite_cfg": None if composite_cfg is None else dict(composite_cfg),
            "composite_channel": composite_channel,
            "composite_marker": composite_marker,
            "max_output_tokens": max_output_tokens,
            "sends_deltas": delivery is not None,
        }
        answer = await port.ask("stream", asked, None if delivery is None else deliver)
        results = {name: read_result(given) for name, given in answer["results"].items()}
        return {spec.name: results[spec.name].validate(spec) for spec in channels}, answer["meta"]

    async def structured_call(
        self,
        messages: Sequence[Mapping[str, object]],
        schema: type[_Model] | Mapping[str, Any],
        *,
        role: str = "",
        max_output_tokens: int = 4_096,
        key: str | None = None,
    ) -> Any:
        """Ask a model for a value: an instance of `schema` if it is a pydantic model, otherwise a dict that matches the
        JSON schema of an object. `pattern`, `patternProperties`, `format` and `uniqueItems` don't count for the model:
        a pydantic model is checked completely only after the model's last reply, and a dict is not checked for them.

        The value is recorded under the key, like the reply of `stream_with_channels`. Raises WorkflowError if the model
        gives no such value, and as `step` does.
        """
        check_outside("structured_call", self._failure)
        is_model = isinstance(schema, type)
        asked = {
            "key": self._choose_key("models.structured_call", key),
            "messages": [dict(message) for message in messages],
            "schema": schema.model_json_schema() if is_model else dict(schema),
            "role": role,
            "max_output_tokens": max_output_tokens,
        }
        value = await self._port().ask("structured", asked)
        try:
            return schema.model_validate(value) if is_model else value
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise self._failure(f"The model's value is invalid: {place}: {first['msg']}") from error


async def stream_with_channels(*, svc: Models, **arguments: Any) -> tuple[dict[str, ChannelResult], StreamMeta]:
    """The same as `svc.stream_with_channels`; `svc` is `self.models`, or `context.models` of a tool."""
    return await svc.stream_with_channels(**arguments)


@contextmanager
def run_inside(what: str) -> Generator[None]:
    """Let nothing durable and no call of a model begin in the block."""
    token = _inside.set(what)
    try:
        yield
    finally:
        _inside.reset(token)


def check_outside(what: str, failure: Callable[[str], Exception]) -> None:
    """Raise `failure` in a block of `run_inside`."""
    if place := _inside.get():
        raise failure(f"{what} can't be called in {place}.")
