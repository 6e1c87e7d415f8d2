"""The tools that a bundle's host offers, as tools of the worker's catalog."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, cast

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import to_json

from chat_proc.bundles.bundle import Bundle
from chat_proc.bundles.host.host import BundleHost, open_bundle_host
from chat_proc.bundles.host.host_process import BundleCode, HostLost, HostOptions, HostUnavailable, SendDelta
from chat_proc.bundles.host.operations import BundleOperations
from chat_proc.bundles.manifest import BadBundle
from chat_proc.bundles.policy import BuiltinToolsSection
from chat_proc.catalog.described import APPROVAL_NOTICE, MAX_TIMEOUT_S
from chat_proc.catalog.schemas import MAX_PARAMETERS, Keywords, read_author_schema
from chat_proc.catalog.tool import Rendered, Tool, ToolCall, ToolEvents, ToolOutcome, ToolRaised, ToolSpec
from chat_proc.tools.offered import BUILTIN_TOOLS, NEEDED_TOOLS
from chat_proc.tools.rendered import RenderingTool
from chat_proc.tools.stored_files import store_file
from everturn.bundles.registry import OperationListing
from everturn.core.cancellation import end_tasks
from everturn.core.errors import Conflict, Invalid
from everturn.core.identity import Role
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.timeline.sources import SourceDraft
from everturn.turns.model import Effect
from everturn_sdk.descriptors import DESCRIPTOR
from everturn_sdk.json_size import has_more_values
from everturn_sdk.operations import MAX_TIMEOUT_S as MAX_OPERATION_TIMEOUT_S
from everturn_sdk.protocol import (
    MAX_DATA_BYTES,
    MAX_VALUES,
    SOURCES,
    BundleDescription,
    CallContext,
    Ended,
    Event,
    PutArtifact,
    Question,
    SourceRow,
    ToolDescription,
    read_content,
)
from everturn_sdk.tools import is_method_name
from everturn_sdk.workflows import WORKFLOW

_log = structlog.get_logger(__name__)

MAX_TOOLS: Final = 100
MAX_SUMMARY_CHARS: Final = 300
MAX_GUIDE_CHARS: Final = 8_000
MAX_OPERATIONS: Final = 32
MAX_OPERATIONS_BYTES: Final = 16 * 1024
"""Of the schemas of all operations of a bundle: each ingress reads those of all bundles every second."""
MAX_SOURCES: Final = 100
"""Sources of one claim."""
_TOOL_ID: Final = re.compile(r"[a-z][a-z0-9_]{0,39}\.[A-Za-z][A-Za-z0-9_]{0,59}")
_OPERATION: Final = re.compile(r"[a-z][a-z0-9_]{0,59}")
_MAX_ID_CHARS: Final = 63
"""Providers allow names of 64 characters, in which the dot takes two."""
_PARAMETER: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


@dataclass(frozen=True, slots=True)
class HostedCode:
    """What runs in the process of a bundle: its tools, and its workflow if it has one."""

    tools: tuple[Tool, ...] = ()
    workflow: BundleHost | None = None
    operations: BundleOperations | None = None


def try_build_code(bundle: Bundle, secrets: Mapping[str, str]) -> BundleCode | None:
    """What runs in a process of this version; None if it has neither tools nor a workflow."""
    manifest = bundle.manifest
    if not manifest.tools and not {DESCRIPTOR, WORKFLOW} & bundle.files.keys():
        return None
    return BundleCode(
        bundle.id,
        bundle.digest,
        bundle.files,
        described=[entry.model_dump(mode="json", exclude_unset=True) for entry in manifest.tools],
        section=manifest.host,
        settings=manifest.settings,
        secrets=secrets,
    )


@asynccontextmanager
async def open_bundle_code(
    bundle: Bundle,
    secrets: Mapping[str, str],
    options: HostOptions,
    objects: Objects,
    taken: Collection[str],
) -> AsyncGenerator[HostedCode]:
    """What the code of a version of a bundle offers; its process runs until the end of the context. `taken` are the ids
    of other tools. Raises Invalid with the reason if it can't be offered."""
    if (code := try_build_code(bundle, secrets)) is None:
        yield HostedCode()
        return
    async with open_bundle_host(code, options) as host:
        # Checking the schemas of a hundred tools takes longer than an event loop may be held.
        tools = await asyncio.to_thread(build_hosted_tools, host, objects, taken)
        if host.description.has_workflow and bundle.manifest.agent.workflow == "dag":
            raise BadBundle(f"The bundle has a {WORKFLOW}, so react.workflow can't be 'dag'. Remove one of them.")
        workflow = host if host.description.has_workflow else None
        if not host.description.operations:
            yield HostedCode(tools, workflow)
            return
        listings = await asyncio.to_thread(read_operations, host.description)
        operations = BundleOperations(listings, partial(open_bundle_host, code, options))
        try:
            yield HostedCode(tools, workflow, operations)
        finally:
            await operations.close()


def check_builtin_tools(section: BuiltinToolsSection, others: Collection[str]) -> None:
    """Raise BadBundle for a tool that does not exist, which may be a typing mistake, or that can't be switched off.
    `others` are the ids of the operator's tools."""
    known = BUILTIN_TOOLS.union(others)
    if unknown := [tool_id for tool_id in (*section.off, *section.ask) if tool_id not in known]:
        raise BadBundle(f"builtin_tools: There is no tool {unknown[0]!a}. The tools are: {', '.join(sorted(known))}.")
    if needed := [tool_id for tool_id in section.off if tool_id in NEEDED_TOOLS]:
        raise BadBundle(f"builtin_tools: {needed[0]} can't be switched off, because every agent needs it.")


def build_hosted_tools(host: BundleHost, objects: Objects, taken: Collection[str]) -> tuple[Tool, ...]:
    """The tools of a bundle. `taken` are the ids of other tools. Raises Invalid with the reason if one can't be
    offered."""
    specs = read_specs(host.description, taken)
    return tuple(RenderingTool(HostedTool(spec, host, objects), objects) for spec in specs)


def read_specs(description: BundleDescription, taken: Collection[str]) -> tuple[ToolSpec, ...]:
    """What a host said about its tools, checked: its code may have said anything. Raises Invalid."""
    if len(description.tools) > MAX_TOOLS:
        raise Invalid(f"The bundle has {len(description.tools)} tools; at most {MAX_TOOLS} are allowed.")
    known = set(taken)
    specs: list[ToolSpec] = []
    for tool in description.tools:
        if tool.tool_id in known:
            raise Invalid(f"Two tools have the id {tool.tool_id!a}. Choose another alias.")
        known.add(tool.tool_id)
        specs.append(_read_spec(tool))
    return tuple(specs)


def read_operations(description: BundleDescription) -> tuple[OperationListing, ...]:
    """What a host said about the operations of its workflow, checked as its tools are. Raises Invalid."""
    if len(description.operations) > MAX_OPERATIONS:
        raise Invalid(
            f"The workflow has {len(description.operations)} operations; at most {MAX_OPERATIONS} are allowed."
        )
    listings: list[OperationListing] = []
    for each in description.operations:
        name = each.name
        if not _OPERATION.fullmatch(name) or any(name == listing.name for listing in listings):
            raise Invalid(f"{name[:100]!a} can't be the name of an operation.")
        _check_limits(name, each.summary, each.timeout_s, MAX_OPERATION_TIMEOUT_S)
        if unknown := set(each.roles).difference(role.value for role in Role):
            known = ", ".join(role.value for role in Role)
            raise Invalid(f"{name}: there is no role {min(unknown)[:100]!a}. The roles are: {known}.")
        read_schema(name, each.parameters)
        listings.append(OperationListing(**each.model_dump()))
    if (size := len(json.dumps([each.parameters for each in listings]))) > MAX_OPERATIONS_BYTES:
        raise Invalid(f"The schemas of all operations have {size} bytes; at most {MAX_OPERATIONS_BYTES} are allowed.")
    return tuple(listings)


def _check_limits(name: str, summary: str, timeout_s: float, max_timeout_s: float) -> None:
    if len(summary) > MAX_SUMMARY_CHARS:
        raise Invalid(
            f"{name}: the first paragraph of its docstring has {len(summary)} characters; at most "
            f"{MAX_SUMMARY_CHARS} are allowed."
        )
    if not 0 < timeout_s <= max_timeout_s:
        raise Invalid(f"{name}: timeout_s is {timeout_s:g}; it must be between 0 and {max_timeout_s:g}.")


def _read_spec(tool: ToolDescription) -> ToolSpec:
    name = tool.tool_id
    if not _TOOL_ID.fullmatch(name) or len(name) > _MAX_ID_CHARS:
        raise Invalid(
            f"{name[:100]!a} is not the id of a tool: alias.function, with at most {_MAX_ID_CHARS} characters."
        )
    _check_limits(name, tool.summary, tool.timeout_s, MAX_TIMEOUT_S)
    if len(tool.guide) > MAX_GUIDE_CHARS:
        raise Invalid(f"{name}: its docstring has {len(tool.guide)} characters; at most {MAX_GUIDE_CHARS} are allowed.")
    return ToolSpec(
        tool_id=name,
        summary=tool.summary,
        guide=f"{tool.guide}\n\n{APPROVAL_NOTICE}" if tool.requires_approval else tool.guide,
        params=build_params(name, read_schema(name, tool.parameters)),
        effect=Effect(tool.effect),
        strategy=tool.strategy,
        timeout_s=tool.timeout_s,
        in_loop=tool.in_loop,
        in_programs=tool.in_programs and not tool.requires_approval,
        requires_approval=tool.requires_approval,
        returns=tool.returns[:MAX_SUMMARY_CHARS],
        untrusted=tool.untrusted,
        addresses=tool.addresses,
        asks_after_untrusted=tool.asks_after_untrusted,
    )


def read_schema(name: str, schema: Keywords) -> dict[str, Any]:
    """The schema of these parameters without references. Raises Invalid unless a model can be given it."""
    expanded = read_author_schema(f"{name}: the schema of its parameters", schema)
    names = cast("dict[str, Any]", expanded.get("properties", {}))
    if len(names) > MAX_PARAMETERS:
        raise Invalid(f"{name}: it has {len(names)} parameters; at most {MAX_PARAMETERS} are allowed.")
    if wrong := [each for each in names if not _PARAMETER.fullmatch(each) or is_method_name(each)]:
        raise Invalid(f"{name}: {wrong[0][:80]!a} can't be the name of a parameter.")
    return expanded


def build_params(name: str, schema: Keywords) -> type[BaseModel]:
    """A model with the names and the outer types of the parameters. What is inside is checked by the host, because
    checking an author's schema, such as its patterns, can take any time."""
    properties = cast("Mapping[str, Keywords]", schema.get("properties", {}))
    required = set(cast("list[str]", schema.get("required", [])))
    fields: dict[str, Any] = {
        field: (_read_type(described), ... if field in required else described.get("default"))
        for field, described in properties.items()
    }
    shown = dict(schema)

    class HostedParams(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

        @classmethod
        def model_json_schema(cls, *_arguments: Any, **_options: Any) -> dict[str, Any]:
            return json.loads(json.dumps(shown))

    try:
        return create_model(f"{name.replace('.', '_')}_params", __base__=HostedParams, **fields)
    except (NameError, TypeError, ValueError) as error:
        raise Invalid(f"{name}: can't use the names of its parameters: {error}") from error


def _read_type(described: Mapping[str, Any]) -> Any:
    if "enum" in described and all(isinstance(each, str) for each in described["enum"]):
        return Literal[tuple(described["enum"])]
    kind = described.get("type")
    return _TYPES.get(kind, Any) if isinstance(kind, str) and described.get("format") is None else Any


class HostedTool:
    """A tool whose function runs in the process of its bundle."""

    def __init__(self, spec: ToolSpec, host: BundleHost, objects: Objects) -> None:
        self._spec = spec
        self._host = host
        self._objects = objects

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def run(self, call: ToolCall) -> ToolOutcome:
        """Raises HostLost, and ToolRaised, if it is unknown what the call has done."""
        tool_id, effect = self._spec.tool_id, self._spec.effect
        running = _RunningCall(self._host, call, tool_id, self._objects)
        try:
            ended, content = await self._host.call(
                tool_id,
                call.context.turn_id,
                call.params.model_dump(exclude_unset=True),
                _describe(call),
                running,
                is_repeatable=effect is not Effect.IRREVERSIBLE,
            )
        except (HostUnavailable, Invalid) as error:
            return ToolOutcome("error", f"{tool_id} was not called: {self._host.redactor.redact(str(error))}")
        except HostLost as error:
            if effect is Effect.IRREVERSIBLE:
                raise
            return ToolOutcome("error", f"{tool_id} failed: {self._host.redactor.redact(str(error))}")
        finally:
            await running.close()
        outcome = await self._read(ended, content)
        return ToolOutcome(
            outcome.status,
            outcome.text,
            artifacts=tuple(running.artifacts.values()),
            value=outcome.value,
            untrusted=self._spec.untrusted,
        )

    async def _read(self, ended: Ended, content: bytes) -> ToolOutcome:
        redactor, tool_id = self._host.redactor, self._spec.tool_id
        match ended.status:
            case "raised":
                raise ToolRaised(redactor.redact(ended.error))
            case "notice":
                return ToolOutcome("error", redactor.redact(ended.error))
            case "invalid":
                return ToolOutcome("error", f"The parameters of {tool_id} are invalid: {redactor.redact(ended.error)}.")
            case "ok":
                return await asyncio.to_thread(self._read_value, ended, content)

    def _read_value(self, ended: Ended, content: bytes) -> ToolOutcome:
        try:
            value = self._host.redactor.redact_value(read_content(content))
        except ValueError as error:
            raise ToolRaised(f"its result is not JSON: {error}") from error
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if ended.rendered is not None:
            value = Rendered(ended.rendered.filename, text, ended.rendered.mime)
        return ToolOutcome("ok", text, value=value)


def _read_sources(content: bytes) -> Sequence[SourceRow]:
    if has_more_values(content, MAX_VALUES):
        raise Invalid(f"The sources have more than {MAX_VALUES} values.")
    try:
        rows = SOURCES.validate_json(content)
    except ValidationError as error:
        raise Invalid(f"The sources can't be read: {error.errors()[0]['msg']}.") from error
    if len(rows) > MAX_SOURCES:
        raise Invalid(f"{len(rows)} sources; a claim can have at most {MAX_SOURCES}.")
    return rows


class _RunningCall:
    """What a running call asks of the worker."""

    def __init__(self, host: BundleHost, call: ToolCall, tool_id: str, objects: Objects) -> None:
        self._redactor = host.redactor
        self._call = call
        self._events = ToolEvents(call, tool_id)
        self._has_excess = False
        """Whether an event was left out, as are all after it."""
        self._objects = objects
        self.artifacts: dict[str, Artifact] = {}
        """The files that the call has stored, by path."""
        self._model_calls: set[asyncio.Task[Any]] = set()

    def show(self, event: Event) -> None:
        if self._has_excess:
            return
        try:
            text = self._redactor.redact(event.text)
            match event.event:
                case "progress":
                    self._events.progress(text)
                case "message":
                    self._events.message(text)
                case "data":
                    if (size := len(to_json(event.data))) > MAX_DATA_BYTES:
                        raise Invalid(f"The data of an event has {size} bytes; at most {MAX_DATA_BYTES} are allowed.")
                    self._events.data(cast("dict[str, Any]", self._redactor.redact_value(event.data or {})))
        except (Conflict, Invalid) as error:
            # The SDK keeps the limits, so this is code that goes round it, and can do so any number of times.
            _log.warning("Left out events of a bundle's tool", call_id=self._call.call_id, error=str(error))
            self._has_excess = True

    async def claim(self, content: bytes) -> list[int]:
        rows = await asyncio.to_thread(_read_sources, content)
        drafts = [
            SourceDraft(url=row.url, title=row.title, text=row.text, published_time_iso=row.published_time_iso)
            for row in rows
        ]
        return [source.sid for source in self._call.context.pool.claim(drafts)]

    async def put_artifact(self, request: PutArtifact, content: bytes) -> str:
        artifact = await store_file(
            self._objects,
            self._call,
            request.path,
            content,
            visibility=request.visibility,
            description=self._redactor.redact(request.description)[:MAX_SUMMARY_CHARS],
            others=self.artifacts.values(),
        )
        self.artifacts[artifact.path] = artifact
        return artifact.ref

    async def ask(self, what: Question, arguments: Mapping[str, Any], send: SendDelta, content: bytes) -> object:
        if (models := self._call.context.models) is None:
            raise Invalid("This call can't use models.")
        if (task := asyncio.current_task()) is not None:
            self._model_calls.add(task)
            task.add_done_callback(self._model_calls.discard)
        return await models.answer(what, arguments, send)

    async def close(self) -> None:
        """The host has cancelled what it asked for. What that costs is recorded before the call ends."""
        self._events.close()
        await end_tasks(*self._model_calls)


def _describe(call: ToolCall) -> CallContext:
    context = call.context
    return CallContext(
        call_id=call.call_id,
        tenant=context.principal.tenant,
        project=context.principal.project,
        user_id=context.principal.user_id,
        roles=tuple(sorted(role.value for role in context.principal.roles)),
        conversation_id=context.conversation_id,
        turn_id=context.turn_id,
        round=context.round,
        now=context.now,
    )
