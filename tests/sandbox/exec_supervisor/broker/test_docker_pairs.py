"""The Docker driver passes the contract of pair engines with a real engine, in each layout."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import docker
import pytest
from helpers.pair_engine_contract import PLAN, PairEngineContract, Subject
from leaks.engines import USUAL_ENGINE, EngineView

from everturn.execution.profiles import ExecutionProfile
from exec_supervisor.broker.docker_engine import DockerEngine
from exec_supervisor.broker.docker_pairs import ROLES, DockerPairs, PairLayout


class TestDockerPairs(PairEngineContract):
    layout: PairLayout = "pair"

    @pytest.fixture
    def subject(self, images: dict[str, str], client: docker.APIClient, tmp_path: Path) -> Iterator[Subject]:
        """With a name and a broker of its own, because other tests use the same engine."""
        name, broker = secrets.token_hex(8), secrets.token_hex(8)
        # It expires: if this process is killed, any broker removes what it leaves.
        profile, expires_s = ExecutionProfile.model_validate(images), int(time.time()) + 600
        plan = replace(PLAN, name=name, profile=profile, expires_s=expires_s)
        address = os.environ.get("DOCKER_HOST") or USUAL_ENGINE
        with_program = ROLES[self.layout][-1]
        with (
            closing(DockerEngine(address)) as engine,
            closing(DockerEngine(f"unix://{tmp_path}/none")) as none,
            closing(EngineView(f"everturn.broker={broker}")) as view,
        ):
            yield Subject(
                DockerPairs(engine, broker, self.layout),
                DockerPairs(engine, "another", self.layout),
                DockerPairs(none, broker, self.layout),
                plan,
                lambda pair: client.kill(f"everturn-{pair}-{with_program}"),
                view.load_left,
                has_one_image=self.layout == "combined",
            )
            assert not view.load_left()


class TestDockerPairsInOneContainer(TestDockerPairs):
    layout = "combined"
