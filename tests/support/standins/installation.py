"""An installation for one test: `make up` and `make down` with its own folder, port and name."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import docker

from everturn_local.ports import LOOPBACK, load_free_port
from everturn_local.settings import REPOSITORY

UP_LIMIT_S = 600
DOWN_LIMIT_S = 300
TALK_LIMIT_S = 120
ANSWER_LIMIT_S = 30
TRIES = 10
BUSY = "(503)"
PYTHON_IMAGE, PYTHON = "everturn/broker:latest", "/opt/everturn/bin/python"
"""One of ours, which is there."""
PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
_DIRECT = build_opener(ProxyHandler({}))


class OwnInstallation:
    """A context manager; all calls block. `image` replaces every image that isn't ours.

    With `s3` files are in a server that speaks S3 instead of a volume.
    """

    def __init__(self, folder: Path, image: str, *, s3: bool = False) -> None:
        self.project = f"everturn-test-{secrets.token_hex(4)}"
        self.url = f"http://{LOOPBACK}:{(port := load_free_port())}"
        self.folder = folder
        self.secrets = folder / "secrets"
        self._env = {
            **os.environ,
            **{f"{name}_IMAGE": image for name in ("POSTGRES", "REDIS", "CLAMAV", "S3")},
            "COMPOSE_HOME": str(folder),
            "COMPOSE_PROJECT_NAME": self.project,
            "PORT": str(port),
            **({"S3": "1"} if s3 else {}),
            "NO_PROXY": LOOPBACK,
        }
        self._engine = cast("Any", docker).from_env(timeout=ANSWER_LIMIT_S)

    def up(self) -> None:
        """Returns when it is ready."""
        self._make("up", limit_s=UP_LIMIT_S)

    def fail_up(self) -> str:
        """What it shows where it does not become ready in a minute."""
        done = self._run_make("up", "LIMIT_S=60", limit_s=UP_LIMIT_S)
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def down(self, *words: str) -> None:
        self._make("down", *words, limit_s=DOWN_LIMIT_S)

    def run_cli(self, token: str, *words: str) -> str:
        """The output of the command line client with this token."""
        client = str(Path(sys.executable).with_name("everturn"))
        command = [client, "--url", self.url, "--token", token, *words]
        for _ in range(TRIES):
            done = subprocess.run(
                command, env=self._env, capture_output=True, text=True, timeout=TALK_LIMIT_S, check=False
            )
            if done.returncode == 0:
                return done.stdout
            # A busy machine may refuse with nothing accepted: then a person tries again.
            assert BUSY in done.stderr, done.stdout + done.stderr
        raise AssertionError(f"{TRIES} times: {done.stderr}")

    def let_guest_in(self) -> str:
        return str(json.loads(self.get("/guests/default/default", method="POST"))["token"])

    def load_readiness(self) -> Any:
        return json.loads(self.get("/readyz"))

    def get(self, path: str, *, method: str = "GET") -> bytes:
        with _DIRECT.open(Request(f"{self.url}{path}", method=method), timeout=ANSWER_LIMIT_S) as answer:
            return bytes(answer.read())

    def post_message(self, token: str, message: dict[str, str]) -> int:
        """Begins a conversation; the status of the answer."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        path = f"{self.url}/conversations/default/default/new/messages"
        request = Request(path, json.dumps(message).encode(), headers, method="POST")
        try:
            with _DIRECT.open(request, timeout=ANSWER_LIMIT_S) as answer:
                return int(answer.status)
        except HTTPError as error:
            with error:
                return error.code

    def read_from(self, network: str, url: str) -> str:
        """What a foreign container that joined this network gets there. Raises ContainerError."""
        source = f"from urllib.request import urlopen; print(urlopen({url!r}, timeout=5).read().decode())"
        output = self._engine.containers.run(
            PYTHON_IMAGE, ["-ISc", source], entrypoint=PYTHON, network=f"{self.project}_{network}", remove=True
        )
        return bytes(output).decode()

    def load_containers(self) -> dict[str, Any]:
        """The engine's description of one container of each service, in any state, by the service's name."""
        found = self._engine.containers.list(all=True, filters={"label": f"{PROJECT_LABEL}={self.project}"})
        return {each.labels[SERVICE_LABEL]: each.attrs for each in found}

    def run_in(self, service: str, *command: str) -> str:
        """What a program prints in a running container of this service, whether it fails or not."""
        filters = {"label": [f"{PROJECT_LABEL}={self.project}", f"{SERVICE_LABEL}={service}"]}
        container, *_ = self._engine.containers.list(filters=filters)
        return bytes(container.exec_run(list(command)).output).decode()

    def _make(self, *words: str, limit_s: float) -> None:
        done = self._run_make(*words, limit_s=limit_s)
        assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]

    def _run_make(self, *words: str, limit_s: float) -> "subprocess.CompletedProcess[str]":
        command = ["make", "--directory", str(REPOSITORY), *words]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=limit_s, check=False)

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down("VOLUMES=1", "YES=1")
        self._engine.close()
