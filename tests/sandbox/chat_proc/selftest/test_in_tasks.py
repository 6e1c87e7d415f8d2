"""The battery in tasks of a stand-in of ECS on Fargate."""

from pathlib import Path

import pytest
from helpers.fargate import run_fargate
from helpers.remote_sandbox import RemoteSandbox
from helpers.task_container import open_containers

from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.remote.ecs import open_ecs_engine
from chat_proc.selftest.run import run_battery
from everturn.execution.profiles import load_profiles
from exec_supervisor.task.start import PROGRAM_UID, build_posture

NOT_HERE = {
    # The stand-in's tasks share the network of this machine, and so the names of its abstract sockets.
    "connect to an abstract socket of the host",
    # Its containers have no control group, and address space is counted for each process alone.
    "allocate memory in child processes",
    "allocate shared memory",
    # On a busy machine the limit of processor time comes first.
    "allocate memory in small steps",
    # A volume of a task has no limit of files.
    "create too many files",
}


@pytest.mark.slow
async def test_it_holds_in_tasks_but_for_what_they_do_not_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bubblewrap_sandbox: SupervisedSandbox
):
    with open_containers(tmp_path) as containers, run_fargate(containers.start) as fargate:
        for name, value in fargate.environment.items():
            monkeypatch.setenv(name, value)
        async with open_ecs_engine(fargate.place("battery")) as engine:
            posture = build_posture(PROGRAM_UID)
            sandbox = RemoteSandbox(engine, load_profiles(""), posture, with_tools=bubblewrap_sandbox)
            report = await run_battery(sandbox, at_once=4)

            assert not await engine.load_leftovers(older_than_s=0)

    # On a busy machine, programs with several attempts may not have ended in time.
    missed = {finding.attempt: finding.detail for finding in report.missed() if "no answer" not in finding.detail}
    assert missed.keys() <= NOT_HERE, missed
    assert report.held > 150
