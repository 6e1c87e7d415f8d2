"""Envelopes of runs for the battery's judges."""

from chat_proc.sandbox.port import ProgramExit, RunArtifact, RunError, RunRecord, RunResult
from chat_proc.selftest.probes.attempts import Surroundings
from everturn.execution.messages import LimitName, RunLimits

AROUND = Surroundings("canary", "neighbour", 1, "abstract", "/nowhere", (), "battery_tools.echo", ("other", "ended"))


def build_run(
    printed: str = "",
    *,
    code: str = "",
    message: str = "",
    limits: tuple[LimitName, ...] = (),
    files: tuple[str, ...] = (),
    duration_ms: int = 1000,
) -> RunResult:
    return RunResult(
        ok=not code,
        artifacts=tuple(RunArtifact(path, "", "external", 1, "", b"x") for path in files),
        error=RunError(code, message, "program.py") if code else None,
        exit=ProgramExit("exit", 1 if code else 0),
        report_text="",
        user_out_tail=printed,
        runtime_err_tail="",
        limits_hit=limits,
        duration_ms=duration_ms,
        record=RunRecord("", 1.0, RunLimits(), None),
    )
