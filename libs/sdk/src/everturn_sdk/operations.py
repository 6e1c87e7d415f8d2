"""Methods of a workflow that programs and widgets call over HTTP, without a turn."""

import inspect
import re
from collections.abc import Callable, Collection
from copy import copy
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from everturn_sdk.protocol import Effect, OperationContext, OperationDescription
from everturn_sdk.tools import BadTool, build_params, read_hints
from everturn_sdk.workflows import BaseWorkflow

MAX_TIMEOUT_S: Final = 45.0
"""With the ways to the worker and back less than the 60 s after which proxies and clients give up."""
_MARK: Final = "__everturn_operation__"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,59}")

_Method = TypeVar("_Method", bound=Callable[..., Any])


class OperationError(Exception):
    """Raise it to tell the caller in a sentence why an operation was refused."""


class OperationOptions(BaseModel):
    """What the platform has to know about an operation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    roles: tuple[str, ...] = ()
    timeout_s: float = Field(default=30.0, gt=0, le=MAX_TIMEOUT_S)
    effect: Effect = "irreversible"


def operation(
    *, roles: Collection[str] = (), timeout_s: float = 30.0, effect: Effect = "irreversible"
) -> Callable[[_Method], _Method]:
    """Mark a method of a workflow as an operation. Only people with one of the `roles` may call it; without roles,
    everybody who may use the bundle. Its typed parameters are the arguments, and the first paragraph of its docstring
    describes it. A parameter of the type OperationContext says who calls. The returned value becomes JSON.

    `effect` says what repeating a call would do: one that is `pure` or `idempotent` is executed once more if its
    process was lost. `timeout_s` is at most 45. A method that is not async runs in a thread, which keeps running after
    the time limit.
    """
    options = OperationOptions(roles=tuple(roles), timeout_s=timeout_s, effect=effect)

    def mark(method: _Method) -> _Method:
        setattr(method, _MARK, options)
        return method

    return mark


class Operation:
    """One operation of a bundle, ready to be described and executed."""

    def __init__(self, workflow: BaseWorkflow, name: str, options: OperationOptions) -> None:
        """Raises BadTool if the method is unsuitable."""
        method = getattr(workflow, name)
        place = f"{type(workflow).__name__}.{name}"
        if not inspect.ismethod(method) or hasattr(BaseWorkflow, name):
            raise BadTool(f"{place}: @operation marks methods of a workflow that are your own.")
        if not _NAME.fullmatch(name):
            raise BadTool(f"{place}: the name of an operation has up to 60 lower-case letters, digits and underscores.")
        hints = read_hints(place, method)
        self._workflow = workflow
        self._context_name = next((each for each, hint in hints.items() if hint is OperationContext), None)
        self._params = build_params(place, method, hints, context=OperationContext)
        guide = inspect.getdoc(method)
        if not guide:
            raise BadTool(f"{place}: the method has no docstring. Say in one what the operation does.")
        self.description = OperationDescription(
            name=name,
            summary=guide.partition("\n\n")[0].replace("\n", " "),
            parameters=self._params.model_json_schema(),
            **options.model_dump(),
        )

    def bind(self, arguments: bytes, context: OperationContext) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The method of a copy of the workflow, as for each turn, and its arguments. Raises
        pydantic.ValidationError."""
        read = self._params.model_validate_json(arguments)
        given = {name: getattr(read, name) for name in self._params.model_fields}
        if self._context_name is not None:
            given[self._context_name] = context
        mine = copy(self._workflow)
        mine.scratchpad = {}
        return getattr(mine, self.description.name), given


def load_operations(workflow: BaseWorkflow | None) -> dict[str, Operation]:
    """The operations of a workflow by name. Raises BadTool."""
    if workflow is None:
        return {}
    marked = {
        name: options
        for name, each in inspect.getmembers_static(type(workflow))
        if isinstance(options := getattr(each, _MARK, None), OperationOptions)
    }
    return {name: Operation(workflow, name, options) for name, options in marked.items()}
