"""The envelope: equal for every end, the supervisor's findings before the executor's word, partial success kept."""

import pytest

from chat_proc.sandbox.port import ContractItem, FileHash, ProgramExit, RunError, RunRequest
from chat_proc.sandbox.results import UnpackedOutputs, build_broken, build_refused, build_result, clean_text, hash_bytes
from everturn.execution.messages import CallRecord, Finished, Posture, ProgramError, Report, RunLimits

REQUEST = RunRequest(
    "run-1", "turn_1", "print()", (ContractItem("a.txt", "the a", "internal"), ContractItem("b.txt")), timeout_s=5
)
LIMITS = RunLimits()
POSTURE = Posture("bubblewrap", "cpython", 1001, "", "", "", "", "", "")
BOTH = UnpackedOutputs({"a.txt": b"aa", "b.txt": b"b"})
FINE = Report(0, None, None, "out", "err", 3, 3)


def finished(verdict="ended", report: Report | None = FINE, **more) -> Finished:
    return Finished(verdict, more.pop("detail", ""), 12, POSTURE, report, **more)


def failed(error: ProgramError | None = None, exit_code=1, signal=None, **more) -> Finished:
    return finished(report=Report(exit_code, signal, error, "", "", 0, 0, **more))


def test_a_good_end_with_all_files_is_ok():
    result = build_result(REQUEST, LIMITS, finished(), BOTH, (FileHash("in", 1, "ff"),))

    assert (result.ok, result.error, result.duration_ms) == (True, None, 12)
    assert (result.user_out_tail, result.runtime_err_tail) == ("out", "err")
    first = result.artifacts[0]
    assert (first.filepath, first.description, first.visibility) == ("a.txt", "the a", "internal")
    assert (first.size, first.sha256, first.body) == (2, hash_bytes(b"aa"), b"aa")
    assert result.record.program_sha256 == hash_bytes(b"print()")
    assert result.record.inputs == (FileHash("in", 1, "ff"),)
    assert [output.path for output in result.record.outputs] == ["a.txt", "b.txt"]
    assert "Wrote a.txt (2 bytes)." in result.report_text


@pytest.mark.parametrize(
    ("end", "code", "where"),
    [
        (finished("not_started", None, detail="no way"), "sandbox_failed", "sandbox"),
        (finished("timeout"), "timeout", "program.py"),
        (finished("timeout", None), "timeout", "program.py"),
        (finished("cancelled"), "cancelled", "program.py"),
        (finished("memory"), "memory_limit", "program.py"),
        (finished("died", None), "killed", "sandbox"),
        (finished("died", None, limits=("memory",)), "memory_limit", "program.py"),
        (finished("ended", None), "killed", "sandbox"),
        (failed(exit_code=3), "exit_code", "program.py"),
        (failed(exit_code=None, signal=11), "killed", "program.py"),
        (failed(exit_code=None, signal=123), "killed", "program.py"),
        (failed(exit_code=None, signal=24), "cpu_limit", "program.py"),
        (failed(exit_code=None, signal=9, limits=("memory",)), "memory_limit", "program.py"),
        (failed(ProgramError("KeyError", "'k'", 3, "T")), "program_error", "program.py line 3"),
        (failed(ProgramError("KeyError", "'k'", None, "T")), "program_error", "program.py"),
        (failed(ProgramError("SyntaxError", "bad", 3, "T")), "syntax_error", "program.py line 3"),
        (failed(ProgramError("MemoryError", "", 3, "T", "memory")), "memory_limit", "program.py line 3"),
    ],
)
def test_every_bad_end_has_a_code_and_keeps_what_came_out(end, code, where):
    result = build_result(REQUEST, LIMITS, end, BOTH)

    assert not result.ok
    assert (result.error.code, result.error.where) == (code, where)
    assert len(result.artifacts) == 2
    assert result.report_text.startswith(f"The run failed ({code}, {where}): ")


@pytest.mark.parametrize(
    ("end", "ended", "sentence"),
    [
        (finished(), ProgramExit("exit", 0), ""),
        (failed(exit_code=3), ProgramExit("exit", 3), "The program ended with exit code 3."),
        (failed(exit_code=None, signal=11), ProgramExit("signal", signal="SIGSEGV"), "ended by signal SIGSEGV."),
        (failed(exit_code=None, signal=123), ProgramExit("signal", signal="123"), "ended by signal 123."),
        (failed(exit_code=None, signal=24), ProgramExit("limit", signal="SIGXCPU"), "s of processor time."),
        (failed(exit_code=None, signal=25), ProgramExit("limit", signal="SIGXFSZ"), "by signal SIGXFSZ."),
        (
            failed(exit_code=None, signal=9, limits=("memory",)),
            ProgramExit("limit", signal="SIGKILL"),
            "MiB of memory.",
        ),
        (finished("timeout"), ProgramExit("limit"), "The program was stopped at its limit of"),
        (finished("memory"), ProgramExit("limit"), "MiB of memory."),
        (finished("died", None, limits=("memory",)), ProgramExit("limit"), "MiB of memory."),
        (finished("cancelled"), ProgramExit("cancelled"), "The program was stopped because the run was cancelled."),
        (finished("died", None), ProgramExit("sandbox"), "The sandbox failed, not the program."),
        (finished("ended", None), ProgramExit("sandbox"), "The sandbox failed, not the program."),
        (finished("not_started", None), ProgramExit("not_run"), "The program did not start."),
    ],
)
def test_the_result_names_what_ended_the_program(end: Finished, ended: ProgramExit, sentence: str):
    result = build_result(REQUEST, LIMITS, end, BOTH)

    assert result.exit == ended
    assert sentence in result.report_text
    assert result.report_text.count("The program") <= 1


def test_missing_files_fail_a_successful_program():
    report = Report(0, None, None, "", "", 0, 0, refused=(("b.txt", "missing"),), undeclared=("c.txt",))

    result = build_result(REQUEST, LIMITS, finished(report=report), UnpackedOutputs({"a.txt": b"a"}))

    assert (result.error.code, result.error.where) == ("missing_output_files", "outputs")
    assert [artifact.filepath for artifact in result.artifacts] == ["a.txt"]
    assert "Missing b.txt: missing." in result.report_text
    assert "the contract does not declare them: c.txt" in result.report_text


def test_files_that_may_not_leave_are_rejected():
    report = Report(0, None, None, "", "", 0, 0, refused=(("b.txt", "symlink"),))

    result = build_result(REQUEST, LIMITS, finished(report=report), UnpackedOutputs({"a.txt": b"a"}))

    assert result.error.code == "output_rejected"


def test_a_file_the_executor_did_not_send_is_missing_whatever_it_says():
    result = build_result(REQUEST, LIMITS, finished(), UnpackedOutputs({"a.txt": b""}))

    assert result.error.code == "missing_output_files"
    assert result.artifacts == ()


def test_a_failing_program_is_the_error_also_when_files_are_missing():
    assert build_result(REQUEST, LIMITS, failed(exit_code=2)).error.code == "exit_code"


def test_limits_of_both_sides_are_joined_and_do_not_fail_a_run_alone():
    report = Report(0, None, None, "", "", 0, 0, ("stdout", "processes"))

    result = build_result(REQUEST, LIMITS, finished(report=report, limits=("processes",)), BOTH)

    assert result.ok
    assert result.limits_hit == ("processes", "stdout")
    assert "printed bytes" in result.report_text


def test_calls_and_refusals_are_in_the_record():
    call = CallRecord(1, "a.b", "ff", True, "", 3, 99)

    result = build_result(REQUEST, LIMITS, finished(calls=(call,), refusals={"not_allowed": 2}), BOTH)

    assert result.record.calls == (call,)
    assert result.record.refusals == {"not_allowed": 2}
    assert "Tool calls refused (not_allowed): 2." in result.report_text


def test_texts_are_cleaned():
    error = ProgramError("E", "a\0b\ud800", 1, "t\0")
    report = Report(1, None, error, "\0", "\udc80", 0, 0, undeclared=("\udc80",))

    result = build_result(REQUEST, LIMITS, finished(report=report))

    for text in (result.error.message, result.report_text, result.user_out_tail, result.runtime_err_tail):
        assert "\0" not in text
        text.encode()
    assert clean_text("plain ü 🙂") == "plain ü 🙂"


def test_endless_texts_of_a_forged_report_are_cut():
    endless = "x" * 1_000_000
    report = Report(1, None, ProgramError(endless, endless, 1, endless), endless, endless, 0, 0)

    result = build_result(REQUEST, LIMITS, finished(report=report))

    texts = (result.report_text, result.user_out_tail, result.runtime_err_tail, result.error.message)
    assert max(len(text) for text in texts) <= 64_010


def test_a_request_that_is_not_run_gets_an_envelope_too():
    result = build_refused(REQUEST, LIMITS, RunError("bad_request", "why", "request"))

    assert (result.ok, result.artifacts, result.record.posture) == (False, (), None)
    assert result.report_text == "The program was not run (bad_request): why"


def test_a_lost_sandbox_is_not_reported_as_not_run():
    result = build_broken(REQUEST, LIMITS, RunError("sandbox_failed", "the supervisor ended", "sandbox"))

    assert (result.ok, result.artifacts, result.record.posture) == (False, (), None)
    assert result.report_text.startswith("The run failed (sandbox_failed, sandbox): the supervisor ended\n")
    assert "unknown" in result.report_text
