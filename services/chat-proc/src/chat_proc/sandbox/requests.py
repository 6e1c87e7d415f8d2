"""What a run request must be before anything is started for it."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from chat_proc.sandbox.packing import measure_input
from chat_proc.sandbox.results import hash_bytes
from everturn.ports.sandbox import FileHash, RunError, RunRequest
from everturn.wire.execution import MIB, RunLimits, check_relative_path

MAX_PROGRAM_BYTES: Final = MIB
MAX_INPUT_BYTES: Final = 64 * MIB
_EXECUTION_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)


def find_problem(request: RunRequest) -> RunError | None:
    """Why a request can't be run under any profile, or None."""
    if not _EXECUTION_ID.fullmatch(request.execution_id):
        return _bad("the execution id has other characters than letters, digits, '-' and '_'")
    if len(request.program.encode("utf-8", "surrogatepass")) > MAX_PROGRAM_BYTES:
        return _bad(f"the program is longer than {MAX_PROGRAM_BYTES} bytes")
    if not 0 < request.timeout_s < math.inf:
        return _bad("the time limit must be a finite number of seconds above 0")
    paths = [item.filepath for item in request.contract]
    if len(set(paths)) < len(paths):
        return _bad("the contract names a file twice")
    for path in (*paths, *request.inputs):
        try:
            check_relative_path(path)
        except ValueError as error:
            return _bad(f"{path[:100]!r}: {error}")
    for names in (paths, list(request.inputs)):
        if (folder := _find_file_used_as_folder(names)) is not None:
            return _bad(f"{folder[:100]!r} can't be a file and the folder of another file")
    return None


def find_excess(request: RunRequest, limits: RunLimits) -> RunError | None:
    """What of a request is more than its profile allows, or None. Raises OSError where an input file is gone."""
    if len(request.contract) > limits.output_files:
        return _bad(f"the contract has more than {limits.output_files} files")
    allowed = min(MAX_INPUT_BYTES, limits.work_dir_bytes)
    if (size := sum(map(measure_input, request.inputs.values()))) > allowed:
        return RunError(
            "inputs_too_large", f"the input files have {size} bytes, at most {allowed} are allowed", "request"
        )
    return None


def hash_inputs(inputs: Mapping[str, bytes | Path]) -> tuple[FileHash, ...]:
    """The inputs for the receipt. Raises OSError."""
    bodies = ((path, body if isinstance(body, bytes) else body.read_bytes()) for path, body in inputs.items())
    return tuple(FileHash(path, len(body), hash_bytes(body)) for path, body in bodies)


def _find_file_used_as_folder(paths: Sequence[str]) -> str | None:
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    return next((path for path in paths if path in folders), None)


def _bad(message: str) -> RunError:
    return RunError("bad_request", message, "request")
