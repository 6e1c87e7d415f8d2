"""`exec_tools.execute_code_python`: runs the program of the code channel and stores the declared files."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal, cast

import structlog
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from chat_proc.catalog.tool import CallPostponed, ToolCall, ToolContext, ToolOutcome, ToolSpec
from chat_proc.sandbox.port import ContractItem, RunNotes, RunRequest, RunResult, Sandbox
from chat_proc.sandbox.receipts import ReceiptSigner, RunPlace, is_unknown
from chat_proc.tools.code.detached_calls import CallRun, DetachedCalls
from chat_proc.tools.code.inputs import InputLoader
from chat_proc.tools.code.program_calls import ProgramCalls, ProgramTools, build_capability, describe_tools
from chat_proc.tools.stored_files import (
    Destination,
    ProducedFile,
    check_room,
    load_local,
    read_destination,
    save_file,
    save_log,
)
from chat_proc.workspace.loading import WorkspaceHistory
from chat_proc.workspace.local import MAX_FILE_BYTES, Workspace, own_file
from everturn.core.errors import EverturnError, Invalid
from everturn.execution.messages import Capability, check_relative_path
from everturn.execution.profiles import DEFAULT_PROFILE, DEFAULT_TIMEOUT_S, ExecutionProfile, Profiles
from everturn.files.model import Artifact, ArtifactKind
from everturn.files.objects import Objects
from everturn.timeline.inert import escape_line
from everturn.turns.model import Effect

_log = structlog.get_logger(__name__)

USUAL_TIMEOUT_S = 60.0
"""The time limit of calls that name none, unless their profile allows less."""
MAX_CONTRACT_FILES = 32
REPORT_CHARS = 8_000
OUT_CHARS = 8_000
ERR_CHARS = 4_000
_LABEL_CHARS = 4_000
"""Together they are below the prompt's limit of a result."""
_ONE_PROFILE: Profiles = {DEFAULT_PROFILE: ExecutionProfile()}
_STARTING_AND_STORING_S = 180.0
MAX_SIGNED_ON_LOOP = 40
"""Files of a receipt that is made on the event loop, in about a millisecond; for more, a thread makes it."""
STORING_S = 60.0
"""For all files of one run and its log."""
_MAX_NAME_CHARS = 40
_NO_NETWORK = "There is\n  no network and nothing can be installed."
_SOME_NETWORK = (
    "A program\n  can reach only the hosts listed under `network` for its profile, over HTTP or HTTPS, through the "
    "proxy in its\n  environment variables, which most clients use by themselves."
)
_NOT_AVAILABLE = "The file store is not available now."


class ContractFile(BaseModel):
    """One file that the program declares to write."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filepath: str = Field(min_length=1, max_length=240)
    description: str = Field(default="", max_length=1000)
    visibility: Literal["internal", "external"] = "external"


class RunCodeParams(BaseModel):
    """The program itself comes from the code channel."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contract: list[ContractFile] = Field(default_factory=lambda: [], max_length=MAX_CONTRACT_FILES)
    prog_name: str = Field(default="program", max_length=120)
    timeout_s: float = Field(default=USUAL_TIMEOUT_S, ge=1.0, le=DEFAULT_TIMEOUT_S)


class ProfiledRunCodeParams(RunCodeParams):
    """Parameters if there are several profiles; the tool's schema lists their names."""

    profile: str


@dataclass(frozen=True, slots=True)
class _Promise:
    """A contract file for the sandbox, and its destination on the timeline."""

    item: ContractItem
    destination: Destination


def build_code_spec(called: Sequence[ToolSpec] = (), profiles: Profiles = _ONE_PROFILE) -> ToolSpec:
    """What the model reads about the tool. Programs may call the tools in `called`."""
    return ToolSpec(
        tool_id="exec_tools.execute_code_python",
        summary="Run a Python program in a sandbox and save its declared files.",
        guide=_build_guide(called, profiles),
        params=_build_params(profiles),
        effect=Effect.IDEMPOTENT,
        effect_of=partial(_find_effect, profiles),
        strategy="exploitation",
        recorded_defaults=("profile",) if len(profiles) > 1 else (),
        takes_code=True,
        returns_partial_work=True,
        may_detach=any(profile.detaches for profile in profiles.values()),
        detaches=partial(_can_detach, profiles),
        result_chars=REPORT_CHARS + OUT_CHARS + ERR_CHARS + _LABEL_CHARS,
        timeout_s=_find_longest(profiles) + _STARTING_AND_STORING_S,
    )


class RunCodeTool:
    """One run per call. A repeated call runs the program again, but the external effects of its tools happen only
    once. A call whose program has a network is not repeated."""

    def __init__(
        self,
        sandbox: Sandbox,
        objects: Objects,
        history: WorkspaceHistory,
        tools: ProgramTools,
        profiles: Profiles | None = None,
        receipts: ReceiptSigner | None = None,
        detached: DetachedCalls | None = None,
    ) -> None:
        self._detached = detached
        self._receipts = receipts
        self._profiles = profiles or _ONE_PROFILE
        self._sandbox = sandbox
        self._tools = tools
        self._objects = objects
        self._history = history
        self._inputs = InputLoader(history, objects)
        self.spec = build_code_spec(tools.specs, self._profiles)

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = self.spec.params.model_validate(call.params, from_attributes=True)
        if not isinstance(params, RunCodeParams):
            raise TypeError("the parameters of the code tool are RunCodeParams")
        name = params.profile if isinstance(params, ProfiledRunCodeParams) else next(iter(self._profiles))
        profile = self._profiles[name]
        tools = self._tools.allowed_by(profile)
        if not (call.code or "").strip():
            return ToolOutcome("error", "The reply has no program. Write it into the code channel after the action.")
        try:
            timeout_s = _choose_timeout(params, name, profile)
            promises = _read_contract(params.contract, call.context)
        except Invalid as invalid:
            return ToolOutcome("error", f"The program was not run: {invalid.detail}")
        texts = [call.code or "", *(f"'{file.filepath}' {file.description}" for file in params.contract)]
        request = _build_request(call, timeout_s, promises, build_capability(tools.specs, timeout_s), profile=name)
        calls = ProgramCalls(tools, call)
        ran, workspace = await self._execute(call, request, texts, calls, profile)
        result = ran.result
        receipt = None
        if self._receipts and ran.notes.began_at and not is_unknown(result):
            place = RunPlace(call.context.principal, call.context.conversation_id, call.call_id)
            named = replace(request, execution_id=ran.run_id)
            sign = partial(self._receipts.sign, named, result, place, ran.notes.began_at)
            files = len(result.record.inputs) + len(result.record.outputs)
            receipt = sign() if files <= MAX_SIGNED_ON_LOOP else await asyncio.to_thread(sign)
        if unmatched := calls.find_unmatched(result.record.calls):
            _log.error("Calls differ from the sandbox's audit", call_id=call.call_id, numbers=unmatched)
        artifacts, refused = await self._store(call, promises, result, workspace, may_wait=ran.may_wait)
        return ToolOutcome(
            "ok" if result.ok else "error",
            _build_text(result, ran.notes, [*refused, calls.describe()]),
            artifacts=artifacts,
            records=calls.records(),
            data=_build_data(result, receipt),
            untrusted=calls.untrusted or any(used.opened for used in result.record.connections),
            duration_ms=None if ran.age_s is None else int(ran.age_s * 1000),
        )

    async def _execute(
        self,
        call: ToolCall,
        request: RunRequest,
        texts: Sequence[str],
        calls: ProgramCalls,
        profile: ExecutionProfile,
    ) -> tuple[CallRun, Workspace]:
        """Run the program, in this call or detached. Only a start loads the inputs, which `texts` name. Returns the
        workspace of before the run, too. Raises CallDetached, CallPostponed."""
        loaded: list[Workspace] = []

        async def prepare(*, needs_all: bool = False) -> RunRequest:
            workspace = await load_local(self._history, call.context)
            inputs = await self._inputs.load(call.context, workspace, texts, needs_all=needs_all)
            began_at = self._receipts.now() if self._receipts else None
            notes = RunNotes(began_at, inputs.describe_unknown(), inputs.describe_left_out())
            loaded.append(workspace)
            return replace(request, inputs=dict(inputs.files), notes=notes)

        if profile.detaches and (detached := self._detached) is not None:
            ran = await detached.run(call, request, profile, prepare, partial(prepare, needs_all=True))
            if not loaded:
                loaded.append(await detached.retry(lambda: load_local(self._history, call.context)))
            return ran, loaded[-1]
        ready = await prepare()
        result = await self._sandbox.run(ready, calls, stop=call.stop)
        return CallRun(result, ready.execution_id, ready.notes), loaded[-1]

    async def _store(
        self,
        call: ToolCall,
        promises: Sequence[_Promise],
        result: RunResult,
        workspace: Workspace,
        *,
        may_wait: bool,
    ) -> tuple[tuple[Artifact, ...], list[str]]:
        """The stored files with the log, and a line for each that is not stored and for the log.

        No error of the store may lose the outcome: the program has run, and its calls have taken effect. If the result
        `may_wait`, a store that is Unavailable or does not answer raises CallPostponed instead.
        """
        deadline_s = asyncio.get_running_loop().time() + STORING_S
        destinations = {promise.item.filepath: promise.destination for promise in promises}
        stored: list[Artifact] = []
        refused: list[str] = []
        for file in result.artifacts:
            destination = destinations[file.filepath]
            try:
                check_room(workspace, destination, len(file.body), max_bytes=MAX_FILE_BYTES)
            except Invalid as invalid:
                refused.append(f"Not saved: {escape_line(file.filepath)}. {invalid.detail}")
                continue
            produced = ProducedFile(
                destination, file.body, file.visibility, "exec", file.description, sha256=file.sha256
            )
            saving = partial(save_file, self._objects, call, produced)
            artifact = await self._try_save(saving, call, deadline_s, may_wait=may_wait)
            if artifact is None:
                refused.append(f"Not saved: {escape_line(file.filepath)}. {_NOT_AVAILABLE}")
                continue
            stored.append(artifact)
            workspace = workspace.with_written(own_file(artifact))
        if (log := _build_log(result)) is not None:
            text = self._tools.parts.redactor.redact(log)
            saving = partial(save_log, self._objects, call, text)
            kept = await self._try_save(saving, call, deadline_s, may_wait=may_wait)
            if kept is None:
                refused.append(f"Not saved: longer output of the program. {_NOT_AVAILABLE}")
            else:
                stored.append(kept)
                refused.append(f"Longer output of the program: {kept.ref}")
        return tuple(stored), refused

    async def _try_save(
        self, save: Callable[[], Awaitable[Artifact]], call: ToolCall, deadline_s: float, *, may_wait: bool
    ) -> Artifact | None:
        try:
            async with asyncio.timeout_at(deadline_s):
                return await (self._detached.retry(save) if may_wait and self._detached else save())
        except (EverturnError, TimeoutError) as error:
            if may_wait and isinstance(error, TimeoutError):
                raise CallPostponed from error
            why = str(error) or type(error).__name__
            _log.warning("Could not store a file of a run", call_id=call.call_id, error=why)
            return None


def _read_contract(contract: Sequence[ContractFile], context: ToolContext) -> tuple[_Promise, ...]:
    promises = tuple(_read_promise(file, context) for file in contract)
    if len({promise.destination for promise in promises}) < len(promises):
        raise Invalid("The contract lists the same file twice.")
    return promises


def _read_promise(file: ContractFile, context: ToolContext) -> _Promise:
    destination = read_destination(file.filepath, context, default=ArtifactKind.OUTPUT)
    filepath = destination.folder_path if file.filepath.startswith("fi:") else file.filepath
    try:
        check_relative_path(filepath)
    except ValueError as error:
        raise Invalid(f"The contract's {filepath!a} can't be used: {error}.") from error
    return _Promise(ContractItem(filepath, file.description, file.visibility), destination)


def _build_params(profiles: Profiles) -> type[RunCodeParams]:
    """Parameters with a choice of profile, if there are several. Other names are refused before the run."""
    names, longest = tuple(profiles), _find_longest(profiles)
    fields: dict[str, Any] = {}
    if longest != DEFAULT_TIMEOUT_S:
        usual = Field(default=min(USUAL_TIMEOUT_S, longest), ge=1.0, le=longest)
        fields["timeout_s"] = (float, usual)
    if len(names) > 1:
        choice = Annotated[Literal[names], BeforeValidator(partial(_check_name, names))]
        fields["profile"] = (choice, Field(default=names[0]))
        return create_model("RunCodeParams", __base__=ProfiledRunCodeParams, **fields)
    validators: dict[str, Any] = {"drop_only_name": model_validator(mode="before")(partial(_drop_only_name, names))}
    doc = None if fields else RunCodeParams.__doc__
    return create_model("RunCodeParams", __base__=RunCodeParams, __doc__=doc, __validators__=validators, **fields)


def _drop_only_name(names: Sequence[str], given: object) -> object:
    """The parameters without `profile`, which workers with several profiles record with their calls."""
    if not isinstance(given, Mapping):
        return given
    params = dict(cast("Mapping[str, object]", given))
    if "profile" in params:
        _check_name(names, params.pop("profile"))
    return params


def _check_name(names: Sequence[str], value: object) -> object:
    if value in names:
        return value
    like = get_close_matches(str(value), names, n=1, cutoff=0.5)
    hint = f" Did you mean {like[0]}?" if like else ""
    message = f"there is no profile {str(value)[:_MAX_NAME_CHARS]!a}.{hint} The profiles are: {', '.join(names)}"
    raise PydanticCustomError("unknown_profile", "{problem}", {"problem": message})


def _find_effect(profiles: Profiles, params: Mapping[str, Any]) -> Effect:
    """Nobody knows what a program has done to the hosts of its network. A profile of other workers may have one."""
    profile = _try_profile(profiles, params)
    return Effect.IRREVERSIBLE if profile is None or profile.network else Effect.IDEMPOTENT


def _can_detach(profiles: Profiles, params: Mapping[str, Any]) -> bool:
    profile = _try_profile(profiles, params)
    return profile is None or profile.detaches


def _try_profile(profiles: Profiles, params: Mapping[str, Any]) -> ExecutionProfile | None:
    """The profile of a call; None for one that this worker lacks."""
    return profiles.get(params.get("profile") or next(iter(profiles)))


def _find_longest(profiles: Profiles) -> float:
    """The longest time limit of a program under any of the profiles, in seconds."""
    return max(profile.timeout_s for profile in profiles.values())


def _choose_timeout(params: RunCodeParams, name: str, profile: ExecutionProfile) -> float:
    """The time limit in seconds. Raises Invalid if the call asks for more than its profile allows."""
    if params.timeout_s <= profile.timeout_s:
        return params.timeout_s
    if "timeout_s" in params.model_fields_set:
        raise Invalid(f"timeout_s is {params.timeout_s:g}; the profile {name} allows at most {profile.timeout_s:g}.")
    return profile.timeout_s


def _build_guide(called: Sequence[ToolSpec], profiles: Profiles) -> str:
    """The tool's guide, with the profiles and tools available to programs here."""
    package = files("chat_proc.tools.code")
    guide = package.joinpath("run_code.md").read_text(encoding="utf-8")
    guide = guide.replace(f"at most {DEFAULT_TIMEOUT_S:g}.", f"at most {_find_longest(profiles):g}.")
    if has_network := any(profile.network for profile in profiles.values()):
        guide = guide.replace(_NO_NETWORK, _SOME_NETWORK)
    if len(profiles) > 1:
        lines = [_describe_profile(name, profile, called) for name, profile in profiles.items()]
        guide = f"{guide.rstrip()}\n- `profile` says what the program may use; without it, `{next(iter(profiles))}`:\n"
        guide += "".join(f"  - {line}\n" for line in lines)
    elif has_network or DEFAULT_PROFILE not in profiles:
        ((name, profile),) = profiles.items()
        guide = f"{guide.rstrip()}\n- Programs run with the profile {_describe_profile(name, profile, called)}.\n"
    if not called:
        return guide
    explained = package.joinpath("program_tools.md").read_text(encoding="utf-8")
    return f"{guide.rstrip()}\n\n{explained.rstrip()}\n{describe_tools(called)}\n"


def _describe_profile(name: str, profile: ExecutionProfile, called: Sequence[ToolSpec]) -> str:
    limits = profile.limits
    parts = [
        f"{limits.memory_bytes >> 20:,} MiB of memory",
        f"{limits.cpu_s:,} s of processor time",
        *([f"timeout_s of at most {profile.timeout_s:,g}"] if profile.timeout_s != DEFAULT_TIMEOUT_S else []),
        f"{limits.processes:,} processes and threads",
        f"{limits.out_dir_bytes >> 20:,} MiB in OUTPUT_DIR",
    ]
    denied = [spec.tool_id for spec in called if not profile.may_call(spec.tool_id)]
    less = f"; cannot call {'tools' if profile.detaches else ', '.join(denied)}" if denied else ""
    more = f"; network: {', '.join(profile.network)}" if profile.network else ""
    return f"`{name}`: {f'{profile.description} ' if profile.description else ''}({', '.join(parts)}){more}{less}"


def _build_request(
    call: ToolCall,
    timeout_s: float,
    promises: Sequence[_Promise],
    capability: Capability,
    *,
    profile: str,
) -> RunRequest:
    """Without inputs and notes."""
    return RunRequest(
        execution_id="exec_" + call.call_id.removeprefix("call_"),
        turn_id=call.context.turn_id,
        program=call.code or "",
        contract=tuple(promise.item for promise in promises),
        timeout_s=timeout_s,
        profile=profile,
        capability=capability,
    )


def _build_text(result: RunResult, notes: RunNotes, refused: Sequence[str]) -> str:
    sections = [notes.unknown, _cut_middle(result.report_text, REPORT_CHARS), notes.left_out]
    sections += refused
    if result.user_out_tail.strip():
        sections.append(f"--- printed ---\n{result.user_out_tail[-OUT_CHARS:].rstrip()}")
    errors = result.runtime_err_tail.strip()
    if errors and errors not in result.report_text:
        sections.append(f"--- errors and warnings ---\n{errors[-ERR_CHARS:]}")
    return "\n".join(section for section in sections if section)


def _build_log(result: RunResult) -> str | None:
    """The kept ends of both streams, if the result shows less of them."""
    out, errors = result.user_out_tail, result.runtime_err_tail
    if len(out) <= OUT_CHARS and len(errors) <= ERR_CHARS:
        return None
    kept = result.record.limits.tail_chars
    heading = f"At most the last {kept:,} characters of each stream."
    return f"{heading}\n--- printed ---\n{out}\n--- errors and warnings ---\n{errors}\n"


def _cut_middle(text: str, cap: int) -> str:
    if len(text) <= cap:
        return text
    half = cap // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out)\n{text[-half:]}"


def _build_data(result: RunResult, receipt: Mapping[str, Any] | None) -> dict[str, Any]:
    """The envelope without the texts and bytes that the result stores elsewhere; with the receipt if runs get one."""
    record = asdict(result.record) | {"refusals": dict(result.record.refusals)}
    return {
        "run": {
            "ok": result.ok,
            "error": asdict(result.error) if result.error else None,
            "exit": asdict(result.exit),
            "limits_hit": list(result.limits_hit),
            "duration_ms": result.duration_ms,
            "record": record,
            **({"receipt": receipt} if receipt else {}),
        }
    }
