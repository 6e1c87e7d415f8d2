"""Messages between worker, supervisor, executor and program of one sandboxed run.

Standard library only: the executor imports this module, `records` and `framing`, nothing else of ours.

    supervisor  -> broker       Dial (a supervisor that connects to its broker, before anything else)
    worker      -> supervisor   Boot (a local supervisor only: a pair of containers has booted by itself);
                                Launch, raw..., InputsEnd; then ToolReply*, Stop?; end of file kills the run
    supervisor  -> worker       Ready; GatewayCall*; raw..., Finished
    supervisor  -> executor     Start, raw..., InputsEnd; then Stop?; end of file ends it (over pipes or `LINE_SOCKET`)
    executor    -> supervisor   Booted; Report, raw..., OutputsEnd
    both between worker and supervisor, if the profile has a network:
                                OpenStream up and StreamOpened down, then StreamData, StreamCredit, StreamLost
    program     -> supervisor   Hello, GatewayCall*      (Unix socket, one connection for many calls)
    supervisor  -> program      Welcome, ToolReply*
    program     -> supervisor   OpenStream               (another Unix socket, one connection for each stream)
    supervisor  -> program      StreamOpened; from then on the bytes of the stream

Raw frames carry a tar stream: the input files downwards, the contract's output files upwards.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from everturn.execution.framing import encode_frame
from everturn.execution.records import ADDED_LATER

MIB: Final = 1 << 20
OUTPUT_DIR: Final = "/workspace/out"
WORKDIR: Final = "/workspace/work"
GATEWAY_SOCKET: Final = "/run/everturn/gateway.sock"
LINE_SOCKET: Final = "/run/everturn/line.sock"
NETWORK_SOCKET: Final = "/run/everturn/network.sock"
PROXY_PORT: Final = 3128
"""Where the proxy of a program with a network listens, on its own loopback device."""
ALLOWED_HOSTS_ONLY: Final = "only the hosts that its profile allows, through the worker; no device but loopback"
"""The `network` of a posture with which a program has a network. Workers compare it."""

MAX_STREAMS: Final = 16
"""Connections of a run that are open at once."""
MAX_OPENED_STREAMS: Final = 4_096
"""Connections that a run can open, or fail to open, in all, to hosts and to the worker itself."""
DIAL_HOST: Final = "everturn-broker"
"""The name in the certificate of a broker to which supervisors connect."""

LINE_WAIT_S: Final = 120.0
"""How long an executor waits until its supervisor listens at `LINE_SOCKET`. In a Pod, the supervisor does so after its
image was pulled and it has connected to its broker, which waits less long for it."""

PROGRAM_NAME: Final = "program.py"
PIPE_FRAME_BYTES: Final = 8 * MIB
EXECUTOR_FRAME_BYTES: Final = 2 * MIB
"""Large enough for a report with the ends of both streams, where one character can be 12 bytes of JSON."""
"""The largest frame that an executor sends; a supervisor rejects larger ones, whose objects could fill its memory."""

GATEWAY_FRAME_BYTES: Final = MIB
MAX_ARGUMENT_VALUES: Final = 10_000
"""Limit for one call of a program, at all depths."""
MAX_PATH_CHARS: Final = 240

Visibility = Literal["internal", "external"]
StopReason = Literal["timeout", "cancelled", "memory"]
LimitName = Literal["time", "memory", "processes", "cpu", "disk", "file_size", "open_files", "stdout", "output"]
Verdict = Literal["ended", "timeout", "cancelled", "memory", "died", "not_started"]

MIN_UID: Final = 1000
"""Systems use lower ones for their own services."""
MAX_UID: Final = 2_147_483_647

_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of one run. With a cgroup, `memory_bytes` counts processes and both folders together.

    `inodes` and `*_dir_bytes` are per folder; `output_bytes` and `output_files` limit what leaves the sandbox. A stream
    with more than `stdout_bytes` is reported in the result; the last `tail_chars` of each are kept, and the rest is
    read and discarded. `address_space_bytes` is what each process may reserve without using it; 0 is `memory_bytes` and
    a gibibyte more.
    """

    memory_bytes: int = 1024 * MIB
    processes: int = 64
    open_files: int = 256
    file_bytes: int = 64 * MIB
    work_dir_bytes: int = 256 * MIB
    out_dir_bytes: int = 128 * MIB
    inodes: int = 8192
    cpu_s: int = 240
    output_bytes: int = 64 * MIB
    output_files: int = 64
    stdout_bytes: int = 16 * MIB
    tail_chars: int = 64_000
    address_space_bytes: int = field(default=0, metadata=ADDED_LATER)


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """The allowed values of one argument of a granted tool; None is no rule. `max_chars` counts text, `max_items` a
    list, and `max_item_chars` each text in it."""

    name: str
    one_of: tuple[str, ...] | None = None
    max_chars: int | None = None
    max_items: int | None = None
    maximum: float | None = None
    max_item_chars: int | None = None


@dataclass(frozen=True, slots=True)
class ToolGrant:
    """One tool the program can call, `alias.name`. With `arguments` only those are allowed; None allows any."""

    tool_id: str
    arguments: tuple[ArgumentRule, ...] | None = None
    max_calls: int | None = None
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Capability:
    """Everything a run can request from the gateway. `max_bytes` counts requests and replies together, as frames.

    Calls can begin for `deadline_s` seconds after the launch of the run; None has no deadline.
    """

    grants: tuple[ToolGrant, ...] = ()
    max_calls: int = 100
    max_bytes: int = 32 * MIB
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that runs the program: `python` of the sandbox environment, and its read-only mounts.

    `roots` are folders and files, `hidden` folders under them that the program sees as empty.
    """

    python: str
    roots: tuple[str, ...]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UidRange:
    """Users of sandboxed programs, from `first` to `last`: each run has one that no other run has at that time."""

    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


def parse_uid_range(text: str) -> UidRange:
    """`20000-20999` as a range. Raises ValueError."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        raise ValueError(f"{text!r} is not a range of users such as 20000-20999")
    found = UidRange(int(first), int(last))
    if not MIN_UID <= found.first <= found.last <= MAX_UID:
        raise ValueError(f"a range of users must lie between {MIN_UID} and {MAX_UID}, with the lower number first")
    return found


@dataclass(frozen=True, slots=True)
class Dial:
    """The supervisor of the pair `pair` connects to its broker. The token is valid once, for this pair only.

    What follows on the connection is the line between worker and supervisor.
    """

    kind: ClassVar[str] = "dial"
    pair: str
    token: str


@dataclass(frozen=True, slots=True)
class Boot:
    """Build the sandbox and start an executor in it, for a run that is not known yet.

    `executable` is the path of the program that isolates, such as bubblewrap. A supervisor that runs as root assigns
    one of the users `uids` to the run. The supervisor creates and removes the folder `run_dir`. `preload` are modules
    that the executor imports before it reports that it has booted; programs that use them start faster. With `network`
    the program gets a proxy, whose connections the worker opens.
    """

    kind: ClassVar[str] = "boot"
    limits: RunLimits
    interpreter: Interpreter
    executable: str
    run_dir: str
    uids: UidRange
    preload: tuple[str, ...] = ()
    network: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """The one run of a booted supervisor. `limits` are those of the profile that the sandbox was built for."""

    kind: ClassVar[str] = "launch"
    execution_id: str
    program: str
    outputs: tuple[str, ...]
    timeout_s: float
    limits: RunLimits
    capability: Capability
    nonce: str


@dataclass(frozen=True, slots=True)
class InputsEnd:
    """All bytes of the input tar have been sent."""

    kind: ClassVar[str] = "inputs_end"


@dataclass(frozen=True, slots=True)
class Stop:
    """End the program now and send what it wrote."""

    kind: ClassVar[str] = "stop"
    reason: StopReason


@dataclass(frozen=True, slots=True)
class Posture:
    """How this run is confined, in words a person can read. `outer_uid` is the uid as the host sees it."""

    launcher: str
    runtime: str
    outer_uid: int
    user: str
    network: str
    memory: str
    processes: str
    disk: str
    seccomp: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The executor has started in its sandbox; nothing of the program has run yet."""

    kind: ClassVar[str] = "ready"
    posture: Posture


@dataclass(frozen=True, slots=True)
class Start:
    """What the executor needs to run the program. `tools` are the granted tool ids, `parameters` the names of each."""

    kind: ClassVar[str] = "start"
    execution_id: str
    program: str
    outputs: tuple[str, ...]
    limits: RunLimits
    nonce: str
    tools: tuple[str, ...]
    memory_limit_bytes: int
    parameters: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Booted:
    """The executor has checked its confinement. `failures` are the failed checks; with any it runs nothing."""

    kind: ClassVar[str] = "booted"
    python: str
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramError:
    """How the program failed. `line` is a line of the program; `limit` is the limit whose error it did not handle."""

    kind: ClassVar[str] = "program_error"
    type: str
    message: str
    line: int | None
    traceback: str
    limit: LimitName | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The executor's account of the program; supervisor and worker treat it as untrusted input.

    `signal` ended the program, or it left with `exit_code`. `undeclared` are names in the output folder that the
    contract does not have, `refused` pairs of contract path and reason.
    """

    kind: ClassVar[str] = "report"
    exit_code: int | None
    signal: int | None
    error: ProgramError | None
    stdout_tail: str
    stderr_tail: str
    stdout_bytes: int
    stderr_bytes: int
    limits: tuple[LimitName, ...] = ()
    undeclared: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OutputsEnd:
    """All bytes of the output tar have been sent."""

    kind: ClassVar[str] = "outputs_end"


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of a gateway connection; the nonce names the run and is not secret from its program."""

    kind: ClassVar[str] = "hello"
    nonce: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The gateway accepts calls on this connection."""

    kind: ClassVar[str] = "welcome"


@dataclass(frozen=True, slots=True)
class GatewayCall:
    """A tool call of the program. To the gateway `id` is the program's number, to the worker the run's."""

    kind: ClassVar[str] = "call"
    id: int
    tool_id: str
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True)
class ToolReply:
    """The answer to a call: `value` when ok, otherwise an error.

    Codes of the gateway: not_allowed, bad_arguments, quota_calls, quota_bytes, quota_time, timeout, too_large, closing.
    Codes of the worker: bad_arguments, timeout, too_large, tool_error, not_found, unavailable, ambiguous, lease_unsure.
    """

    kind: ClassVar[str] = "reply"
    id: int
    ok: bool
    value: object = None
    error_code: str = ""
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call that passed the gateway's checks. `bytes` counts request and reply."""

    id: int
    tool_id: str
    arguments_sha256: str
    ok: bool
    error_code: str
    duration_ms: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The supervisor's last frame: verdict, duration and `limits` are its own findings, `report` is the executor's.

    `refusals` counts the calls that the gateway rejected, by code. `detail` says why a run did not start or stopped
    responding.
    """

    kind: ClassVar[str] = "finished"
    verdict: Verdict
    detail: str
    duration_ms: int
    posture: Posture | None
    report: Report | None = None
    limits: tuple[LimitName, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    refusals: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Connect to a host of the network. The program's `stream` is 0; the supervisor numbers those of a run."""

    kind: ClassVar[str] = "open_stream"
    stream: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The connection is open, unless `error` says why not."""

    kind: ClassVar[str] = "stream_opened"
    stream: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class StreamData:
    """The next bytes in one direction; no bytes are its end, and the other direction continues."""

    kind: ClassVar[str] = "stream_data"
    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamCredit:
    """The receiver has passed data on, and the sender may send that much more (`everturn.execution.streams`)."""

    kind: ClassVar[str] = "stream_credit"
    stream: int
    amount: int


@dataclass(frozen=True, slots=True)
class StreamLost:
    """The connection has broken, in both directions."""

    kind: ClassVar[str] = "stream_lost"
    stream: int


StreamMessage = StreamData | StreamCredit | StreamLost


def check_relative_path(path: str) -> None:
    """Raise ValueError unless `path` is relative, canonical, and free of misleading characters."""
    parts = path.split("/")
    if not path or len(path) > MAX_PATH_CHARS or len(path.encode("utf-8", "replace")) > 2 * MAX_PATH_CHARS:
        raise ValueError(f"a path must have 1 to {MAX_PATH_CHARS} characters")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError("a path must be relative, without empty, '.' or '..' parts")
    if any(len(part.encode("utf-8", "replace")) > 255 for part in parts):
        raise ValueError("a name can have at most 255 bytes")
    if "\\" in path or not path.isprintable():
        raise ValueError("a path must not contain backslashes or control characters")


def hash_arguments(arguments: Mapping[str, object]) -> str:
    """SHA-256 in hex of the arguments as JSON with names sorted at every depth. Raises FrameError.

    Bytes are encoded as in frames, so equal arguments have one hash in any spelling.

    The supervisor's audit and the worker's effect ledger use the same hash.
    """
    sent: object = json.loads(encode_frame(arguments, 2 * GATEWAY_FRAME_BYTES)[_LENGTH_BYTES:])
    return hashlib.sha256(json.dumps(sent, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
