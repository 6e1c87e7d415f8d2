"""Execution profiles: the operator's limits for sandboxed runs, by name. Worker and broker read the same document."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Final, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from everturn.core.errors import Invalid
from everturn.execution.destinations import MODEL_SERVER, parse_destination
from everturn.execution.messages import MIB, RunLimits

DEFAULT_PROFILE: Final = "default"
LOCAL_ENGINE: Final = "worker"
BATTERY_PROFILE: Final = "battery"
"""The sandbox and images of `default`, without a network, and with limits so small that the escape battery reaches each
within seconds."""
BATTERY_LIMITS: Final = RunLimits(
    memory_bytes=200 * MIB,
    processes=20,
    open_files=64,
    file_bytes=4 * MIB,
    work_dir_bytes=16 * MIB,
    out_dir_bytes=8 * MIB,
    inodes=200,
    cpu_s=2,
    output_bytes=6 * MIB,
    stdout_bytes=MIB,
    tail_chars=48_000,
)
MAX_LIMIT: Final = 1 << 50
"""Of each number in `limits`: a petabyte, far below what the kernel and its interfaces can count."""
MIN_OPEN_FILES: Final = 32
"""What a Python program needs to import its libraries; with fewer, none runs."""
MAX_DETACHED_OUTPUT_BYTES: Final = 256 * MIB
"""Of a run that workers detach: its result is stored as one object, which is written and read within seconds and is in
memory twice meanwhile. A turn can't keep more files anyway."""
MAX_PROFILES: Final = 32
MAX_WARM: Final = 32
MAX_DESTINATIONS: Final = 50
DEFAULT_TIMEOUT_S: Final = 300.0
MAX_TIMEOUT_S: Final = 1800.0
"""A quarter of the two hours after which a broker removes a pair, which can have waited warm for half an hour."""

_LIMIT_NAMES: Final = frozenset(entry.name for entry in fields(RunLimits))

_TOOL_PATTERN: Final = r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?\.([A-Za-z0-9_]+|\*)$"
ToolPattern = Annotated[str, Field(pattern=_TOOL_PATTERN, max_length=100)]
ProfileName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$", max_length=100)]


class ExecutionProfile(BaseModel):
    """One profile. Images, `runtime` and `shm_bytes` concern containers only.

    `timeout_s` is the longest time limit of a program. `runtime` is the name under which the container engine knows the
    program's runtime, such as `runsc`, or the RuntimeClass of its Pod; empty for the engine's own choice.
    Without `shm_bytes` there is no /dev/shm, a third place that a program could write to; pools of processes need it.
    `warm` pairs are kept booted, with the modules of `preload` imported; 0 starts each run cold.
    `network` are the hosts to which the worker connects programs, such as `pypi.example.org`, `*.example.com:443` or
    `api.example.com:8443`; without any they have no network. `model.everturn:80` is the model server of coding agents,
    inside the worker.
    `engine` is where its programs run: `worker` is the launcher of the workers, and `fargate` detaches each run.
    A run that takes longer than `detach_after_s` is detached: its turn waits for it without a worker. Programs of
    such a profile can't call tools.
    Programs of this profile can't call `denied_tools`: tool ids such as `web_tools.web_fetch`, or all of an alias with
    `web_tools.*`. `description` explains to the model what the profile is for, where it can choose one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    limits: RunLimits = RunLimits()
    executor_image: str = Field(default="everturn/executor:latest", min_length=1, max_length=300)
    supervisor_image: str = Field(default="everturn/exec-supervisor:latest", min_length=1, max_length=300)
    runtime: str = Field(default="", max_length=63, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")
    timeout_s: float = Field(default=DEFAULT_TIMEOUT_S, ge=1, le=MAX_TIMEOUT_S)
    engine: Literal["worker", "fargate"] = "worker"
    detach_after_s: float | None = Field(default=None, ge=0, le=MAX_TIMEOUT_S)
    cpus: float = Field(default=1.0, ge=0.1, le=64)
    shm_bytes: int = Field(default=0, ge=0, le=8 << 30)
    network: tuple[Annotated[str, Field(max_length=300)], ...] = Field(default=(), max_length=MAX_DESTINATIONS)
    warm: int = Field(default=0, ge=0, le=MAX_WARM)
    preload: tuple[ModuleName, ...] = Field(default=(), max_length=20)
    denied_tools: tuple[ToolPattern, ...] = Field(default=(), max_length=100)
    description: str = Field(default="", max_length=200, pattern=r"^[^\n\r]*$")

    @property
    def detaches(self) -> bool:
        """Whether runs can go on while their turn waits."""
        return self.engine != LOCAL_ENGINE or self.detach_after_s is not None

    @property
    def is_for_agents(self) -> bool:
        """Whether coding agents run with it, and no programs of a model: its network has the model server."""
        return MODEL_SERVER in self.network

    def may_call(self, tool_id: str) -> bool:
        """Whether the profile allows its programs to call the tool."""
        if self.detaches:
            return False
        aliases = tool_id.partition(".")[0], tool_id.rpartition(".")[0]
        return not {tool_id, *(f"{alias}.*" for alias in aliases)} & set(self.denied_tools)

    @field_validator("limits", mode="before")
    @classmethod
    def check_limits(cls, value: object) -> object:
        """Reject names that are not limits, and limits that are no such numbers."""
        if not isinstance(value, dict):
            return value
        given = cast("dict[str, object]", value)
        if unknown := sorted(set(given) - _LIMIT_NAMES):
            raise ValueError(f"{unknown[0]!r} is not a limit; there are: {', '.join(sorted(_LIMIT_NAMES))}")
        if bad := [name for name, amount in given.items() if type(amount) is not int or not 0 < amount <= MAX_LIMIT]:
            raise ValueError(f"{bad[0]} must be a whole number from 1 to 2^50")
        if cast("dict[str, int]", given).get("open_files", MIN_OPEN_FILES) < MIN_OPEN_FILES:
            raise ValueError(f"open_files must be at least {MIN_OPEN_FILES}")
        return given

    @field_validator("network")
    @classmethod
    def normalize_network(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """The hosts in one form, `host:port`; a port that is not given is 443. Rejects what is no name of a host."""
        return tuple(dict.fromkeys(str(parse_destination(text)) for text in value))

    @model_validator(mode="after")
    def check_detaching(self) -> Self:
        """Reject a network of programs that may be started again, and outputs that can't be kept."""
        if self.detaches and self.network:
            raise ValueError("a profile whose runs are detached can't have a network: a lost run is started again")
        is_kept = self.engine == LOCAL_ENGINE and self.detach_after_s is not None
        if is_kept and self.limits.output_bytes > MAX_DETACHED_OUTPUT_BYTES:
            most = f"{MAX_DETACHED_OUTPUT_BYTES} ({MAX_DETACHED_OUTPUT_BYTES // MIB} MiB)"
            raise ValueError(f"limits.output_bytes must be at most {most} with detach_after_s")
        return self


Profiles = Mapping[str, ExecutionProfile]
_DOCUMENT: Final = TypeAdapter(dict[ProfileName, ExecutionProfile])


def load_profiles(setting: str) -> Profiles:
    """The profiles of a setting: empty, JSON text, or the path of a JSON file; always includes `default` and `battery`.

    Raises Invalid, also if a file can't be read, or if it has a profile `battery`, which must not be weakened.
    """
    text = setting.strip()
    try:
        if text and not text.startswith(("{", "[", '"')):
            text = Path(text).read_text(encoding="utf-8-sig")
        profiles = _DOCUMENT.validate_python(json.loads(text or "{}", object_pairs_hook=_build_object))
    except ValidationError as error:
        raise Invalid(f"EXECUTION_PROFILES can't be used: {_describe(error)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise Invalid(f"EXECUTION_PROFILES can't be used: {error}") from error
    if len(profiles) > MAX_PROFILES:
        raise Invalid(f"EXECUTION_PROFILES contains more than {MAX_PROFILES} profiles")
    if BATTERY_PROFILE in profiles:
        raise Invalid(f"EXECUTION_PROFILES can't define {BATTERY_PROFILE!r}: it is derived from the default profile")
    default = profiles.get(DEFAULT_PROFILE, ExecutionProfile())
    battery = default.model_copy(update={"limits": BATTERY_LIMITS, "warm": 0, "preload": (), "network": ()})
    return {DEFAULT_PROFILE: default, BATTERY_PROFILE: battery, **profiles}


def choose_profiles(profiles: Profiles, names: str) -> Profiles:
    """The profiles that the code tool offers; the first is the default of calls. `names` is separated by commas.

    Without names these are `default` and then all others, but never `battery`. Raises Invalid for unknown names.
    """
    known = [DEFAULT_PROFILE, *(name for name in profiles if name not in (DEFAULT_PROFILE, BATTERY_PROFILE))]
    chosen = list(dict.fromkeys(part.strip() for part in names.split(",") if part.strip())) or known
    if unknown := [name for name in chosen if name not in known]:
        raise Invalid(f"CODE_PROFILES has {unknown[0][:80]!r}; EXECUTION_PROFILES has: {', '.join(known)}")
    if profiles[chosen[0]].is_for_agents:
        why = f"which is for coding agents: its network has {MODEL_SERVER}"
        raise Invalid(f"CODE_PROFILES begins with {chosen[0]!r}, {why}")
    return {name: profiles[name] for name in chosen}


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Raises ValueError for a key that is defined twice, the first of which would be ignored."""
    built = dict(pairs)
    if len(built) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is defined twice")
    return built


def _describe(error: ValidationError) -> str:
    """Each error with its place, such as `default.cpus: Input should be a valid number`."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'the document'}: {problem['msg']}"
        for problem in error.errors(include_url=False)
    )
