"""The recorded input of a remote run: what a live worker would send to its supervisor, and what it would receive."""

from dataclasses import replace
from typing import Final

from pydantic import TypeAdapter, ValidationError

from chat_proc.sandbox.launching import build_launch, find_excess, find_problem, load_inputs
from chat_proc.sandbox.port import RunRequest, RunResult
from chat_proc.sandbox.remote.port import RUN_ID, RemoteRun, StartRecord
from chat_proc.sandbox.results import build_refused
from chat_proc.sandbox.supervised import SupervisedRun, SupervisorFailed
from everturn.execution.framing import FrameDecoder, FrameError, encode_frame, encode_raw
from everturn.execution.messages import PIPE_FRAME_BYTES, Capability, Finished, InputsEnd, Ready, RunLimits
from everturn.execution.records import BadMessage, build_message, parse_message
from everturn.execution.task_orders import limit_result_bytes

_PIECE_BYTES: Final = 64 << 10
_START: Final = TypeAdapter(StartRecord)


async def prepare_run(request: RunRequest, limits: RunLimits) -> RemoteRun | RunResult:
    """The run of a request, without the right to call tools; or the envelope of a request that can't be run.

    Build the result with `launching.build_run_result` from what the engine has collected. Raises OSError if an input
    file is missing, and ValueError for an execution id that is no `RUN_ID`.
    """
    if not RUN_ID.fullmatch(request.execution_id):
        raise ValueError(f"{request.execution_id[:100]!r} is not the id of a remote run")
    if problem := find_problem(request) or find_excess(request, limits):
        return build_refused(request, limits, problem)
    input_hashes, pieces = await load_inputs(request.inputs)
    launch = build_launch(replace(request, capability=Capability()), limits)
    return RemoteRun(launch, pieces, StartRecord(input_hashes, request.notes))


def record_start(start: StartRecord) -> bytes:
    """JSON, about 200 bytes for each input."""
    return _START.dump_json(start)


def read_start(data: bytes) -> StartRecord:
    """Raises SupervisorFailed."""
    try:
        return _START.validate_json(data)
    except ValidationError as error:
        raise SupervisorFailed("the stored record of its start can't be read") from error


def record_line(run: RemoteRun) -> bytes:
    """All that the supervisor of a run receives, up to `task_orders.MAX_LINE_BYTES`."""
    frames = (
        encode_frame(build_message(run.launch), PIPE_FRAME_BYTES),
        *map(encode_raw, run.inputs),
        encode_frame(build_message(InputsEnd()), PIPE_FRAME_BYTES),
    )
    return b"".join(frames)


def read_recorded(data: bytes, limits: RunLimits) -> SupervisedRun:
    """What the supervisor of a run has sent, checked as on a live line: up to 150 ms for 60 MB.

    Raises SupervisorFailed.
    """
    if len(data) > (most := limit_result_bytes(limits)):
        raise SupervisorFailed(f"the stored result has {len(data)} bytes; at most {most} are allowed")
    decoder, tar = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True), bytearray()
    try:
        for start in range(0, len(data), _PIECE_BYTES):
            for frame in decoder.feed(data[start : start + _PIECE_BYTES]):
                if isinstance(frame, bytes):
                    tar += frame
                    continue
                match parse_message(frame, Ready, Finished):
                    case Ready():
                        pass
                    case Finished() as finished:
                        return SupervisedRun(finished, tar)
        decoder.check()
    except (FrameError, BadMessage) as error:
        raise SupervisorFailed(f"invalid frame in the stored result: {error}") from error
    raise SupervisorFailed("the stored result is incomplete")
