"""Doors: the program's answers are read, whatever else it prints, and the probes travel with it."""

import json
from dataclasses import replace

from tests.unit.chat_proc.selftest.results import AROUND, build_run

from chat_proc.selftest.run import build_door_trials, build_inputs, read_answers
from chat_proc.selftest.trials import Finding


def test_answers_are_read_and_other_lines_say_nothing():
    printed = "\n".join(['["network", "connect", true, "EPERM"]', "[1]", '["a", "b", "yes", "c"]', "text", "{"])

    assert read_answers(build_run(printed)) == [Finding("network", "connect", True, "EPERM")]


def test_the_probes_travel_as_files_with_what_they_may_know():
    inputs = build_inputs(replace(AROUND, canary="secret"))

    assert "chat_proc/selftest/probes/network.py" in inputs
    assert json.loads(inputs["surroundings.json"])["canary"] == "secret"


def test_every_door_is_in_a_program_that_compiles():
    doors, abuse, waiting = build_door_trials(AROUND)

    assert ("network", "connect over ipv4") in doors.attempts
    assert {group for group, _ in (*abuse.attempts, *waiting.attempts)} == {"gateway", "gateway, by waiting"}
    for trial in (doors, abuse, waiting):
        compile(trial.program, "program.py", "exec")
