"""Output tricks: a file that was delivered or not reported counts as not held."""

from tests.unit.chat_proc.selftest.results import AROUND, build_run

from chat_proc.selftest.exhaustion import build_output_trials

TRICKS, *NAMES = build_output_trials(AROUND)
GOOD = tuple(path for path in TRICKS.outputs if path in ("good", "hole") or path.startswith("n") or "e\u0301" in path)
BAD = tuple(path for path in TRICKS.outputs if path not in GOOD)


def judge(result):
    return {finding.attempt: finding.held for finding in TRICKS.judge(result)}


def test_all_hold_when_each_is_refused_and_the_rest_came():
    message = ", ".join(f"{path} (symlink)" for path in BAD)

    held = judge(build_run(code="output_rejected", message=message, files=GOOD))

    assert set(held.items()) == {(name, True) for _, name in TRICKS.attempts}


def test_one_that_came_out_has_not_held():
    message = ", ".join(f"{path} (symlink)" for path in BAD)

    held = judge(build_run(code="output_rejected", message=message, files=(*GOOD, "link")))

    assert [name for name, well in held.items() if not well] == ["export a file through a symbolic link"]


def test_an_omitted_attempt_counts_as_not_held():
    assert not any(judge(build_run(code="killed")).values())


def test_a_bad_name_must_not_be_run():
    for trial in NAMES:
        assert [finding.held for finding in trial.judge(build_run(code="bad_request"))] == [True]
        assert [finding.held for finding in trial.judge(build_run(code="missing_output_files"))] == [False]


def test_the_program_compiles():
    compile(TRICKS.program, "program.py", "exec")
