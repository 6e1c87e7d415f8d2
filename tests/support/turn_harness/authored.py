"""Workflows of authors that run in the process of the test, with the SDK and without a host."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any

from chat_proc.bundles.host.host_process import HostLost, HostUnavailable, RunHandler, RunRaised
from everturn.core.errors import EverturnError, Invalid
from everturn_sdk import BaseWorkflow, Payload, React, WorkflowError
from everturn_sdk.protocol import CallContext, Function, Hook, Question, RunPayload
from everturn_sdk.workflows import read_answer


class WorkerLost(Exception):
    """The process ends here."""


class LocalWorkflow:
    """Implements Workflow. `runs` counts the executions."""

    bundle_id = "desk"

    def __init__(self, workflow: BaseWorkflow) -> None:
        self._workflow = workflow
        self._ports: dict[str, LocalPort] = {}
        self.runs = 0
        self.ended: list[str] = []

    async def run_workflow(self, payload: RunPayload, context: CallContext, handler: RunHandler) -> str | None:
        self.runs += 1
        given = Payload.model_validate({**context.model_dump(), **payload.model_dump()})
        port = self._ports[context.turn_id] = LocalPort(handler)
        try:
            port.attached = self._workflow.attach(port, given, payload.urls)
            return read_answer(await port.attached.run(given))
        except WorkerLost as error:
            raise HostLost("The reason: it was killed by signal 9.") from error
        except Exception as error:
            raise RunRaised(f"{type(error).__name__}: {error}") from error
        finally:
            self.ended.append(context.turn_id)
            del self._ports[context.turn_id]

    @property
    def hooks(self) -> Sequence[Hook]:
        return self._workflow.hooks

    async def invoke(self, turn_id: str, function: Function, arguments: Mapping[str, Any]) -> str:
        port = self._ports.get(turn_id)
        if port is not None and port.attached is not None and function not in ("search", "read"):
            try:
                await port.attached.observe(function, arguments)
            except Exception as error:
                raise Invalid(f"{type(error).__name__}: {error}") from error
            return ""
        if port is None or port.react is None:
            raise HostUnavailable("The workflow of this turn does not run any more.")
        try:
            value = await port.react.invoke(function, arguments, port)
        except Exception as error:
            raise Invalid(f"{type(error).__name__}: {error}") from error
        return value if isinstance(value, str) else json.dumps(value)


class LocalPort:
    """Implements RunPort; everything passes through JSON, as in a socket."""

    def __init__(self, handler: RunHandler) -> None:
        self._handler = handler
        self.react: React | None = None
        self.attached: BaseWorkflow | None = None
        self.logged: list[str] = []

    async def ask(
        self,
        what: Question,
        arguments: Mapping[str, Any],
        deliver: Callable[[Any, bool], Awaitable[None]] | None = None,
        content: bytes = b"",
    ) -> Any:
        async def send(delta: Mapping[str, Any], is_field: bool) -> None:
            if deliver is not None:
                await deliver(json.loads(json.dumps(delta)), is_field)

        try:
            asked = json.loads(json.dumps(dict(arguments)))
            return json.loads(json.dumps(await self._handler.ask(what, asked, send, content)))
        except EverturnError as error:
            raise WorkflowError(error.detail) from error

    def log(self, text: str) -> None:
        self.logged.append(text)

    async def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        return await function(*arguments) if iscoroutinefunction(function) else function(*arguments)

    def serve(self, react: React) -> None:
        self.react = react
