"""Functions as tools: what `@tool` says about one, what a call gives it, and what it can return."""

import asyncio
import inspect
import json
import re
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, cast, overload

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.errors import PydanticUserError

from everturn_sdk.models import ModelPort, Models
from everturn_sdk.protocol import (
    MAX_CONTENT_BYTES,
    MAX_DATA_BYTES,
    MAX_EVENTS,
    SENT_TEXT_CHARS,
    CallContext,
    Effect,
    SourceRow,
    Strategy,
    ToolDescription,
)

MAX_TIMEOUT_S = 300.0
_MARK = "__everturn_tool__"

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Result = TypeVar("_Result")


class ToolError(Exception):
    """Raise it to tell the model in a sentence why a call failed. The call then counts as having had no effect."""


class BadTool(Exception):
    """A function or its description can't be a tool; the text says why."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Return it for a text that the person should see, such as an HTML page: it becomes a file of the turn, and the
    model gets one line about it. `filename` is relative to `outputs/`. Without a `mime`, the type follows from the
    name."""

    filename: str
    text: str
    mime: str = ""


class ToolOptions(BaseModel):
    """What the platform has to know about a function. Defaults are cautious: a call counts as irreversible.

    Set `untrusted` if the output contains text of third parties. `in_loop` offers the tool to the model, `in_programs`
    to its programs. With `requires_approval` a person has to approve each call, and programs can't make one.
    `addresses` names the parameters with web addresses that the function requests. With `asks_after_untrusted` a call
    needs approval once the conversation has read untrusted text. `strategy` decides which other tools may be called in
    the same reply.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    effect: Effect = "irreversible"
    strategy: Strategy = "unknown"
    requires_approval: StrictBool = False
    in_programs: StrictBool = True
    in_loop: StrictBool = True
    timeout_s: float = Field(default=60.0, gt=0, le=MAX_TIMEOUT_S, strict=True)
    untrusted: StrictBool = False
    addresses: tuple[str, ...] = ()
    asks_after_untrusted: StrictBool = False

    @model_validator(mode="after")
    def check_callers(self) -> "ToolOptions":
        if self.requires_approval and "in_programs" in self.model_fields_set and self.in_programs:
            raise ValueError("a program can't wait for a person: leave out in_programs, or requires_approval")
        if self.requires_approval and not self.in_loop:
            raise ValueError("only the loop can call a tool with requires_approval: set in_loop")
        return self


@overload
def tool(function: _Function, /) -> _Function: ...


@overload
def tool(
    *,
    effect: Effect = "irreversible",
    strategy: Strategy = "unknown",
    requires_approval: bool = False,
    in_programs: bool | None = None,
    in_loop: bool = True,
    timeout_s: float = 60.0,
    untrusted: bool = False,
    addresses: Sequence[str] = (),
    asks_after_untrusted: bool = False,
) -> Callable[[_Function], _Function]: ...


def tool(
    function: _Function | None = None,
    /,
    *,
    effect: Effect = "irreversible",
    strategy: Strategy = "unknown",
    requires_approval: bool = False,
    in_programs: bool | None = None,
    in_loop: bool = True,
    timeout_s: float = 60.0,
    untrusted: bool = False,
    addresses: Sequence[str] = (),
    asks_after_untrusted: bool = False,
) -> _Function | Callable[[_Function], _Function]:
    """Mark a function as a tool. Its typed parameters become those of the tool, and its docstring explains to the model
    how to use it; the first paragraph is the summary, of at most 300 characters. A parameter of the type ToolContext
    receives the context of the call. A function that is not async runs in a thread, which keeps running if the call is
    cancelled. Without options, `@tool` and `@tool()` are the same.

    - `effect`: what repeating a call would do. If a crash interrupts a call, it is repeated if the tool is `pure` or
      `idempotent`; the model learns that the outcome of an `irreversible` one is uncertain.
    - `strategy`: the purpose of a call: `exploration` finds information, `exploitation` produces something from it,
      `neutral` does neither. It decides which calls one reply may make together.
    - `requires_approval`: a person has to approve each call; programs can't make one.
    - `in_programs`, `in_loop`: whether programs and the model can call the tool. Both can by default.
    - `timeout_s`: time limit of a call in seconds, at most 300.
    - `untrusted`: whether the result contains text of third parties.
    - `addresses`: the names of parameters with web addresses that the function requests.
    - `asks_after_untrusted`: a call needs approval once the conversation has read untrusted text.
    """
    chosen = {
        "effect": effect,
        "strategy": strategy,
        "requires_approval": requires_approval,
        "in_loop": in_loop,
        "timeout_s": timeout_s,
        "untrusted": untrusted,
        "addresses": addresses,
        "asks_after_untrusted": asks_after_untrusted,
        **({} if in_programs is None else {"in_programs": in_programs}),
    }
    try:
        options = ToolOptions.model_validate(chosen)
    except ValidationError as error:
        raise ValueError(f"@tool: {explain_problems(error)}") from None

    def mark(function: _Function) -> _Function:
        setattr(function, _MARK, options)
        return function

    return mark if function is None else mark(function)


def explain_problems(error: ValidationError) -> str:
    """What is wrong with a description, for its author."""
    found: list[str] = []
    for each in error.errors(include_url=False, include_input=False):
        place = ".".join(str(part)[:60] for part in each["loc"])
        text = each["msg"].removeprefix("Value error, ").replace("Input should be", "it must be", 1)
        text = {"extra_forbidden": "unknown key", "missing": "it is missing"}.get(each["type"], text)
        found.append(f"{place}: {text}" if place else text)
    return "; ".join(found[:5])


def find_options(function: object) -> ToolOptions | None:
    """What `@tool` said about a function; None if it is not a tool."""
    options = getattr(function, _MARK, None) if inspect.isroutine(function) else None
    return options if isinstance(options, ToolOptions) else None


class CallPort(ModelPort, Protocol):
    """How the context of a call reaches the worker. Implemented by the host."""

    def emit(self, event: Literal["progress", "message", "data"], text: str, data: dict[str, Any] | None) -> None: ...
    async def claim(self, sources: Sequence[SourceRow]) -> list[int]: ...
    async def put_artifact(
        self, path: str, content: bytes, description: str, visibility: Literal["internal", "external"]
    ) -> str: ...
    def wait(self, made: Awaitable[Any]) -> Any: ...


@dataclass(slots=True)
class ToolContext:
    """The current call, and what its function can do for the person while it runs.

    `progress`, `message`, `data` and `log` can be used everywhere. `claim`, `put_artifact` and the methods of
    `models`, which are those of a workflow, are awaited; a function that is not async uses
    `context.wait(context.claim(...))`.
    """

    call: CallContext
    """For whom and where the call is made."""
    _port: CallPort = field(repr=False)
    _events_left: int = field(default=MAX_EVENTS, repr=False)
    is_cancelled: bool = False
    """Whether the call was cancelled. A long function that is not async should check this from time to time."""

    @property
    def models(self) -> Models:
        """The models of the bundle. All tools of a turn together can make 20 calls of each kind."""
        return Models(lambda: self._port, lambda _function, key: key or "tool", ToolError)

    def progress(self, text: str) -> None:
        """Report progress to the person; a long text is cut. Raises ToolError after 100 events of the call."""
        self._emit("progress", text)

    def message(self, text: str) -> None:
        """Send a message to the person, with the limits of `progress`."""
        self._emit("message", text)

    def data(self, data: Mapping[str, Any]) -> None:
        """Send data to a client that supports this tool. Raises ToolError if it is not JSON or too large."""
        try:
            encoded = json.dumps(dict(data), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ToolError(f"The data of an event must be JSON: {error}") from error
        if len(encoded) > MAX_DATA_BYTES:
            raise ToolError(f"The data of an event has {len(encoded)} bytes; at most {MAX_DATA_BYTES} are allowed.")
        self._emit("data", "", json.loads(encoded))

    def log(self, text: str) -> None:
        """Write a line to the operator's log. Known secrets are hidden."""
        self._port.log(text[:SENT_TEXT_CHARS])

    async def claim(self, sources: Sequence[SourceRow]) -> list[int]:
        """Add web sources to the conversation, which answers can then cite; returns the number of each. Raises
        ToolError if one has no usable address."""
        return await self._port.claim(sources)

    async def put_artifact(
        self,
        path: str,
        content: bytes | str,
        *,
        description: str = "",
        visibility: Literal["internal", "external"] = "external",
    ) -> str:
        """Store a file of the turn, such as `outputs/report.pdf`; returns its ref. The person sees an external one with
        the answer. Raises ToolError if it can't be stored."""
        data = content.encode() if isinstance(content, str) else content
        if len(data) > MAX_CONTENT_BYTES:
            raise ToolError(f"{path} has {len(data)} bytes; at most {MAX_CONTENT_BYTES} can be stored.")
        return await self._port.put_artifact(path, data, description, visibility)

    def wait(self, made: Coroutine[Any, Any, _Result]) -> _Result:
        """Wait for `claim`, `put_artifact` or a method of `models` in a function that is not async, and return the
        result."""
        return cast("_Result", self._port.wait(made))

    def _emit(
        self, event: Literal["progress", "message", "data"], text: str, data: dict[str, Any] | None = None
    ) -> None:
        if self._events_left <= 0:
            raise ToolError(f"A call can send at most {MAX_EVENTS} events.")
        self._events_left -= 1
        self._port.emit(event, text[:SENT_TEXT_CHARS], data)


class ToolFunction:
    """One function with its id and options, ready to be described and called."""

    def __init__(self, tool_id: str, function: Callable[..., Any], options: ToolOptions) -> None:
        """Raises BadTool if the signature is unsuitable for a tool."""
        self.tool_id = tool_id
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        hints = read_hints(tool_id, function)
        self.context_name = next((name for name, hint in hints.items() if hint is ToolContext), None)
        self.params = build_params(tool_id, function, hints, context=ToolContext)
        self.description = _describe(tool_id, function, options, self.params, hints)

    def read_arguments(self, arguments: bytes) -> dict[str, Any]:
        """The arguments from JSON, by name. Raises pydantic.ValidationError."""
        read = self.params.model_validate_json(arguments)
        return {name: getattr(read, name) for name in self.params.model_fields}


def read_hints(tool_id: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's parameters and result by name. Raises BadTool."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise BadTool(f"{tool_id}: can't read its annotations: {error}") from error


def build_params(
    tool_id: str, function: Callable[..., Any], hints: Mapping[str, Any], *, context: type
) -> type[BaseModel]:
    """A model of the parameters without the one of the type `context`. Raises BadTool."""
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if hints.get(name) is context:
            continue
        if name not in hints:
            raise BadTool(f"{tool_id}: the parameter {name!r} has no type.")
        if name.startswith("_") or is_method_name(name):
            raise BadTool(f"{tool_id}: {name!r} can't be the name of a parameter. Choose another one.")
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise BadTool(f"{tool_id}: the parameter {name!r} must accept a keyword argument.")
        fields[name] = (hints[name], ... if parameter.default is inspect.Parameter.empty else parameter.default)
    try:
        config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
        model = create_model(f"{tool_id.replace('.', '_')}_params", __config__=config, **fields)
        model.model_json_schema()
    except _UNSUITABLE as error:
        raise BadTool(f"{tool_id}: {_explain_parameters(fields)}") from error
    return model


_UNSUITABLE = (PydanticUserError, NameError, TypeError, ValueError)


def _explain_parameters(fields: Mapping[str, tuple[Any, Any]]) -> str:
    for name, (hint, _) in fields.items():
        try:
            TypeAdapter(hint).json_schema()
        except _UNSUITABLE:
            return (
                f"the parameter {name!r} has a type that can't be written as JSON: {_describe_type(hint)}. Use str, "
                "int, float, bool, list, dict, a dataclass or a pydantic model."
            )
    return "can't describe its parameters. Use simpler types and defaults."


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def is_method_name(name: str) -> bool:
    """Whether a parameter of this name would replace a method of the pydantic model of the parameters."""
    return name.startswith("model_") and hasattr(BaseModel, name)


def _describe(
    tool_id: str,
    function: Callable[..., Any],
    options: ToolOptions,
    params: type[BaseModel],
    hints: Mapping[str, Any],
) -> ToolDescription:
    if unknown := set(options.addresses) - set(params.model_fields):
        raise BadTool(f"{tool_id}: `addresses` names {min(unknown)!r}, which is not one of its parameters.")
    guide = inspect.getdoc(function)
    if not guide:
        raise BadTool(f"{tool_id}: the function has no docstring, which the model needs to use it.")
    if unprintable := _UNPRINTABLE.search(guide):
        raise BadTool(f"{tool_id}: the docstring has the character {unprintable[0]!r}, which no model can be given.")
    return ToolDescription(
        tool_id=tool_id,
        summary=guide.partition("\n\n")[0].replace("\n", " "),
        guide=guide,
        parameters=params.model_json_schema(),
        returns=_describe_type(hints.get("return", Any)),
        **options.model_dump(exclude={"in_programs"}),
        in_programs=options.in_programs and not options.requires_approval,
    )


def _describe_type(hint: Any) -> str:
    if hint is Any:
        return "any value"
    if hint is None or hint is type(None):
        return "None"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def run_coroutine(loop: asyncio.AbstractEventLoop, made: Awaitable[Any]) -> Any:
    """Wait in a thread for something that runs on the loop. Raises ToolError on the loop's own thread."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is not None:
        raise ToolError("An async function awaits the context's methods and does not use `wait`.")

    async def finish() -> Any:
        return await made

    return asyncio.run_coroutine_threadsafe(finish(), loop).result()
