"""The result of a run, from the supervisor's findings, the executor's claims and the output files; and the tar streams
that carry files in and out."""

import hashlib
import io
import signal
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from chat_proc.sandbox.port import (
    ConnectionRecord,
    FileHash,
    ProgramExit,
    RunArtifact,
    RunError,
    RunRecord,
    RunRequest,
    RunResult,
)
from everturn.execution.messages import PROGRAM_NAME, Finished, LimitName, Report, RunLimits

_BLOCK: Final = 512
_NAME, _SIZE, _CHECKSUM, _MAGIC = slice(0, 100), slice(124, 136), slice(148, 156), slice(257, 262)
_TYPE: Final = 156
EMPTY_TAR: Final = bytes(2 * _BLOCK)
"""A tar stream without members consists of its end marker."""

_LISTED: Final = 50
_HOW_FAR: Final = "It is unknown how far the program got."

_LISTED_HOSTS: Final = 20
_REFUSAL_TEXT: Final[Mapping[str, str]] = {
    "not_allowed": "the profile of the run does not allow this host and port",
    "not_public": "its address is not on the public internet",
    "unreachable": "it can't be reached",
    "over_limit": "the program has reached its limit of connections or bytes",
}
_LIMIT_TEXT: Final[dict[LimitName, str]] = {
    "time": "the time limit",
    "memory": "the memory limit",
    "processes": "the limit of processes and threads",
    "cpu": "the limit of processor time",
    "disk": "the space or the number of files of a workspace folder",
    "file_size": "the size limit of a single file",
    "open_files": "the limit of open files",
    "stdout": "the limit of printed bytes (the rest was discarded)",
    "output": "the limit of bytes that may leave the sandbox",
}

MAX_REPORT_CHARS: Final = 64_000
MAX_MESSAGE_CHARS: Final = 4_000
MAX_TAIL_CHARS: Final = 64_000
"""Limits of the executor's texts: it shares its user with the program, so they can be forged and endless."""


def pack_inputs(inputs: Mapping[str, bytes | Path]) -> Iterator[bytes]:
    """A tar stream in pieces of at most 64 KiB. Reads the files that are given as paths; raises OSError."""
    sink = _Sink()
    with tarfile.open(fileobj=cast("IO[bytes]", sink), mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path, content in inputs.items():
            member = tarfile.TarInfo(path)
            member.size = measure_input(content)
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
                archive.addfile(member, file)
            yield from sink.take()
    yield from sink.take()


def measure_input(content: bytes | Path) -> int:
    """Bytes of one input. Raises OSError."""
    return len(content) if isinstance(content, bytes) else content.stat().st_size


class _Sink:
    """The output of `tarfile`, taken in whole pieces."""

    _PIECE_BYTES: Final = 64 << 10

    def __init__(self) -> None:
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        return len(data)

    def take(self) -> Iterator[bytes]:
        held, self._held = bytes(self._held), bytearray()
        for start in range(0, len(held), self._PIECE_BYTES):
            yield held[start : start + self._PIECE_BYTES]


@dataclass(frozen=True, slots=True)
class UnpackedOutputs:
    """Contents by contract path, and the problem of the stream (empty if none)."""

    files: Mapping[str, bytes]
    problem: str = ""


def unpack_outputs(data: bytes | bytearray, outputs: tuple[str, ...]) -> UnpackedOutputs:
    """The files of an executor's tar: plain ustar, regular files only, each named by its index in the contract.

    Nothing in the stream chooses a path. Files before the first invalid byte are kept.
    """
    files: dict[str, bytes] = {}
    view = memoryview(data)
    place = 0
    try:
        while header := bytes(view[place : place + _BLOCK]).rstrip(b"\0"):
            number, size = _parse_header(header.ljust(_BLOCK, b"\0"))
            start = place + _BLOCK
            if number >= len(outputs) or outputs[number] in files:
                raise ValueError(f"member {number} is not in the contract, or appears twice")
            if start + size > len(data):
                raise ValueError(f"{outputs[number]} is truncated")
            files[outputs[number]] = bytes(view[start : start + size])
            place = start + -(-size // _BLOCK) * _BLOCK
    except ValueError as error:
        return UnpackedOutputs(files, str(error))
    return UnpackedOutputs(files)


def _parse_header(header: bytes) -> tuple[int, int]:
    """Number and size of a member. Raises ValueError."""
    if header[_MAGIC] != b"ustar" or header[_TYPE : _TYPE + 1] not in (b"0", b"\0"):
        raise ValueError("a member is not a regular file")
    plain = header[: _CHECKSUM.start] + b" " * 8 + header[_CHECKSUM.stop :]
    if _parse_number(header[_CHECKSUM], 8) != sum(plain):
        raise ValueError("a header's checksum is wrong")
    return _parse_number(header[_NAME], 10), _parse_number(header[_SIZE], 8)


def _parse_number(field: bytes, base: int) -> int:
    digits = field.strip(b"\0 ")
    if not digits.isdigit():
        raise ValueError("a header has an invalid number")
    return int(digits, base)


_NO_OUTPUTS: Final = UnpackedOutputs({})


def build_result(
    request: RunRequest,
    run_limits: RunLimits,
    finished: Finished,
    outputs: UnpackedOutputs = _NO_OUTPUTS,
    input_hashes: tuple[FileHash, ...] = (),
    connections: tuple[ConnectionRecord, ...] = (),
) -> RunResult:
    """The envelope. It is ok if the program ended by itself without an error and wrote all files of its contract."""
    artifacts = build_artifacts(request, outputs)
    missing = _find_missing(request, finished.report, artifacts)
    report = finished.report
    limits = tuple(dict.fromkeys((*finished.limits, *(report.limits if report else ()))))
    error = find_error(request, run_limits, finished, limits) or _find_output_error(missing)
    return RunResult(
        ok=error is None,
        artifacts=artifacts,
        error=error,
        exit=(ended := find_exit(finished, limits)),
        report_text=_cap(
            _build_report_text(error, ended, finished, artifacts, missing, limits, connections), MAX_REPORT_CHARS
        ),
        user_out_tail=_cap_tail(report.stdout_tail if report else ""),
        runtime_err_tail=_cap_tail(report.stderr_tail if report else ""),
        limits_hit=limits,
        duration_ms=finished.duration_ms,
        record=RunRecord(
            program_sha256=hash_bytes(request.program.encode("utf-8", "surrogatepass")),
            timeout_s=request.timeout_s,
            limits=run_limits,
            posture=finished.posture,
            inputs=input_hashes,
            outputs=tuple(FileHash(artifact.filepath, artifact.size, artifact.sha256) for artifact in artifacts),
            calls=finished.calls,
            refusals=finished.refusals,
            profile=request.profile,
            connections=connections,
        ),
    )


def build_refused(request: RunRequest, run_limits: RunLimits, error: RunError) -> RunResult:
    """The envelope of a request that is not run."""
    text = f"The program was not run ({error.code}): {error.message}"
    return _build_empty(request, run_limits, error, ProgramExit("not_run"), text)


def is_refused_by_sandbox(result: RunResult) -> bool:
    """Whether the program was not run for a reason of the sandbox, such as a broker that does not answer."""
    return result.exit.by == "not_run" and result.error is not None and result.error.code == "sandbox_failed"


def may_start_later(result: RunResult) -> bool:
    """Whether the program was not run because the sandbox is away or has no room, and not because it can't run this
    program, such as without its image."""
    return is_refused_by_sandbox(result) and result.error is not None and result.error.where == "sandbox"


def build_broken(request: RunRequest, run_limits: RunLimits, error: RunError) -> RunResult:
    """The envelope of a run whose sandbox was lost."""
    return _build_empty(request, run_limits, error, ProgramExit("sandbox"), f"{_error_line(error)}\n{_HOW_FAR}")


def _build_empty(
    request: RunRequest, run_limits: RunLimits, error: RunError, ended: ProgramExit, text: str
) -> RunResult:
    return RunResult(
        ok=False,
        artifacts=(),
        error=error,
        exit=ended,
        report_text=_cap(clean_text(text), MAX_REPORT_CHARS),
        user_out_tail="",
        runtime_err_tail="",
        limits_hit=(),
        duration_ms=0,
        record=RunRecord(
            program_sha256=hash_bytes(request.program.encode("utf-8", "surrogatepass")),
            timeout_s=request.timeout_s,
            limits=run_limits,
            posture=None,
            profile=request.profile,
        ),
    )


def build_artifacts(request: RunRequest, outputs: UnpackedOutputs) -> tuple[RunArtifact, ...]:
    """The contract's files that were written, in contract order."""
    return tuple(
        RunArtifact(item.filepath, item.description, item.visibility, len(body), hash_bytes(body), body)
        for item in request.contract
        if (body := outputs.files.get(item.filepath))
    )


def find_error(
    request: RunRequest, run_limits: RunLimits, finished: Finished, limits: tuple[LimitName, ...]
) -> RunError | None:
    """Why the program failed, apart from its outputs; the supervisor's findings take precedence over the executor's
    claims."""
    match finished.verdict:
        case "not_started":
            return RunError("sandbox_failed", clean_text(finished.detail) or "the sandbox did not start", "sandbox")
        case "timeout":
            return RunError(
                "timeout", f"The program was stopped at its limit of {request.timeout_s:g} s.", PROGRAM_NAME
            )
        case "cancelled":
            return RunError("cancelled", "The program was stopped because the run was cancelled.", PROGRAM_NAME)
        case "memory":
            return _memory_error(run_limits)
        case "died":
            return _memory_error(run_limits) if "memory" in limits else _died(finished)
        case "ended":
            return find_program_error(run_limits, finished.report, limits) if finished.report else _died(finished)


def find_exit(finished: Finished, limits: tuple[LimitName, ...]) -> ProgramExit:
    """What ended the program; the supervisor's findings take precedence over the executor's claims."""
    match finished.verdict:
        case "not_started":
            return ProgramExit("not_run")
        case "timeout" | "memory":
            return ProgramExit("limit")
        case "cancelled":
            return ProgramExit("cancelled")
        case "died" | "ended":
            pass
    report = finished.report if finished.verdict == "ended" else None
    if report is None:
        return ProgramExit("limit" if "memory" in limits else "sandbox")
    if report.signal is None:
        return ProgramExit("exit", report.exit_code)
    is_limit = "memory" in limits or report.signal in (signal.SIGXCPU, signal.SIGXFSZ)
    return ProgramExit("limit" if is_limit else "signal", signal=_signal_name(report.signal))


def find_program_error(run_limits: RunLimits, report: Report, limits: tuple[LimitName, ...]) -> RunError | None:
    """How a program that ended by itself failed, or None."""
    if (error := report.error) is not None:
        if error.limit == "memory":
            return _memory_error(run_limits, error.line)
        code = "syntax_error" if error.type in ("SyntaxError", "IndentationError", "TabError") else "program_error"
        return RunError(code, _cap(f"{error.type}: {error.message}", MAX_MESSAGE_CHARS), _where(error.line))
    if report.signal is not None:
        if "memory" in limits:
            return _memory_error(run_limits)
        if report.signal == signal.SIGXCPU:
            return RunError(
                "cpu_limit", f"The program reached its limit of {run_limits.cpu_s} s of processor time.", PROGRAM_NAME
            )
        return RunError("killed", f"The program was ended by signal {_signal_name(report.signal)}.", PROGRAM_NAME)
    if report.exit_code:
        return RunError("exit_code", f"The program ended with exit code {report.exit_code}.", PROGRAM_NAME)
    return None


def clean_text(text: str) -> str:
    """Text that every store and every wire accepts: no NUL, no lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _cap(text: str, chars: int) -> str:
    return clean_text(text if len(text) <= chars else text[:chars] + " …")


def _cap_tail(text: str) -> str:
    return clean_text(text[-MAX_TAIL_CHARS:])


def hash_bytes(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def _memory_error(run_limits: RunLimits, line: int | None = None) -> RunError:
    allowed_mib = run_limits.memory_bytes >> 20
    return RunError("memory_limit", f"The program exceeded its limit of {allowed_mib} MiB of memory.", _where(line))


def _died(finished: Finished) -> RunError:
    detail = clean_text(finished.detail)
    return RunError("killed", f"The sandbox ended before the program reported its end. {detail}".strip(), "sandbox")


def _where(line: int | None) -> str:
    return PROGRAM_NAME if line is None else f"{PROGRAM_NAME} line {line}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _find_missing(
    request: RunRequest, report: Report | None, artifacts: tuple[RunArtifact, ...]
) -> tuple[tuple[str, str], ...]:
    """Contract paths without a file, each with the executor's reason if it gave one."""
    reasons = dict(report.refused) if report else {}
    present = {artifact.filepath for artifact in artifacts}
    return tuple(
        (item.filepath, reasons.get(item.filepath, "missing")[:40])
        for item in request.contract
        if item.filepath not in present
    )


def _find_output_error(missing: tuple[tuple[str, str], ...]) -> RunError | None:
    if not missing:
        return None
    named = ", ".join(f"{path} ({reason})" for path, reason in missing)
    only_absent = all(reason in ("missing", "empty") for _, reason in missing)
    code = "missing_output_files" if only_absent else "output_rejected"
    return RunError(
        code, clean_text(f"The program ended without writing all files of its contract: {named}."), "outputs"
    )


def _try_describe_exit(error: RunError, ended: ProgramExit) -> str | None:
    """What ended the program, unless the error says so."""
    match ended.by:
        case "exit":
            return None if error.code == "exit_code" else f"The program exited with code {ended.code}."
        case "sandbox":
            return "The sandbox failed, not the program."
        case "not_run":
            return "The program did not start."
        case "signal" | "limit" | "cancelled":
            return None


def _build_report_text(
    error: RunError | None,
    ended: ProgramExit,
    finished: Finished,
    artifacts: tuple[RunArtifact, ...],
    missing: tuple[tuple[str, str], ...],
    limits: tuple[LimitName, ...],
    connections: tuple[ConnectionRecord, ...],
) -> str:
    report = finished.report
    lines = [
        f"The program finished successfully in {finished.duration_ms} ms." if error is None else _error_line(error)
    ]
    if error is not None and (described := _try_describe_exit(error, ended)) is not None:
        lines.append(described)
    if report and report.error:
        lines.append(report.error.traceback.rstrip())
    lines.extend(f"Reached {_LIMIT_TEXT[limit]}." for limit in limits if limit != "time")
    lines.extend(f"Wrote {artifact.filepath} ({artifact.size} bytes)." for artifact in artifacts)
    lines.extend(f"Missing {path}: {reason}." for path, reason in missing)
    if report and report.undeclared:
        names = ", ".join(report.undeclared[:_LISTED])
        lines.append(f"Not saved, because the contract does not declare them: {names}.")
    lines.extend(f"Tool calls refused ({code}): {count}." for code, count in sorted(finished.refusals.items()))
    lines.extend(_list_connections(connections))
    if finished.detail and error and finished.detail not in error.message:
        lines.append(finished.detail)
    return "\n".join(lines)


def _list_connections(connections: tuple[ConnectionRecord, ...]) -> list[str]:
    """A line about the hosts that were used, and one for each that was not, at most 20."""
    used = [f"{it.host}:{it.port} ({it.received_bytes:,} bytes received)" for it in connections if it.opened]
    lines = [f"Connected to {', '.join(used[:_LISTED_HOSTS])}."] if used else []
    for it in [it for it in connections if it.refused][:_LISTED_HOSTS]:
        reasons = ", ".join(_REFUSAL_TEXT[reason] for reason in it.refused)
        lines.append(f"Not connected to {it.host}:{it.port}: {reasons}.")
    return lines


def _error_line(error: RunError) -> str:
    return f"The run failed ({error.code}, {error.where}): {error.message}"
