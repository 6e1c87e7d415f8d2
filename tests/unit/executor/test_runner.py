"""The report a runner makes of a program's end; whole runs are tried on the real sandbox."""

from everturn.execution.framing import encode_frame
from everturn.execution.messages import ProgramError, RunLimits
from everturn.execution.records import build_message
from executor.report import Tail
from executor.runner import build_report
from executor.watch import ProgramEnd

FAILED = ProgramError("MemoryError", "", 3, "Traceback", "memory")


def tail(data: bytes = b"") -> Tail:
    tail = Tail(1000)
    tail.add(data)
    return tail


def report_of(status: int, stdout: bytes = b"", failure: bytes = b"", limits: RunLimits | None = None):
    end = ProgramEnd(status, tail(stdout), tail(), tail(failure))
    return build_report(end, limits or RunLimits(), undeclared=("x",), refused=(("y", "missing"),))


def test_a_successful_program():
    report = report_of(0, b"hello")

    assert (report.exit_code, report.signal, report.error, report.limits) == (0, None, None, ())
    assert (report.stdout_tail, report.stdout_bytes) == ("hello", 5)
    assert (report.undeclared, report.refused) == (("x",), (("y", "missing"),))


def test_an_exit_code_and_a_signal():
    assert (report_of(3 << 8).exit_code, report_of(3 << 8).signal) == (3, None)
    assert (report_of(9).exit_code, report_of(9).signal) == (None, 9)


def test_processor_time_is_a_limit_known_by_its_signal():
    assert report_of(24).limits == ("cpu",)


def test_a_reported_failure_names_its_limit():
    report = report_of(1 << 8, failure=encode_frame(build_message(FAILED)))

    assert (report.error, report.limits) == (FAILED, ("memory",))


def test_an_invalid_failure_report_is_ignored():
    for nonsense in (b"\xff" * 900, b"\0\0\0\2{}", b"\0\0\0\2[]", b"\0\0\0"):
        assert report_of(1 << 8, failure=nonsense).error is None


def test_too_much_printed_is_named_and_only_its_tail_kept():
    report = report_of(0, b"x" * 500 + b"end", limits=RunLimits(stdout_bytes=100, tail_chars=5))

    assert (report.stdout_tail, report.limits) == ("xxend", ("stdout",))
