"""The overlay `small` for real: its commands, settings, volumes and Secrets start the services beside real servers."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import kustomize
import pytest
from kustomize import Document, name_of

from everturn_client.client import EverturnClient
from everturn_local.ports import load_free_port
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.servers.redis import load_redis_binary

REPOSITORY = Path(__file__).resolve().parents[3]
K8S = REPOSITORY / "deploy" / "k8s"
ENTRYPOINTS = {"migrate": "ingress", "operator": "ingress", "ingress": "ingress", "worker": "chat_proc"}
"""The modules that the images run, by the container."""
SETTINGS = {"CLAMD_URL": "tcp://127.0.0.1:9", "EVERTURN_MODEL": "offline"}
"""No antivirus here, and a model that needs no key."""
START_LIMIT_S = 60
LIMIT_S = 120


@dataclass
class Pod:
    """A running container of a workload; `grace_s` is the time it has to end."""

    process: subprocess.Popen[bytes]
    log: Path
    grace_s: int

    def stop(self) -> int:
        """Its exit status after SIGTERM. Raises TimeoutExpired where Kubernetes would kill it."""
        self.process.terminate()
        return self.process.wait(self.grace_s)


@dataclass
class Cluster:
    """What the overlay builds, on this machine: volumes are folders, and names of Services are addresses."""

    folder: Path
    documents: dict[tuple[str, str], Document]
    addresses: dict[str, str]

    def build_pod(self, kind: str, name: str) -> tuple[list[str], dict[str, str], Document]:
        """Command, environment and specification of the pod of a workload."""
        pod = self.documents[kind, f"everturn-{name}"]["spec"]["template"]["spec"]
        [container] = pod["containers"]
        places = {each["mountPath"]: str(self.mount(pod, name, each)) for each in container["volumeMounts"]}
        places["/opt/everturn/migrations"] = str(REPOSITORY / "migrations")
        environment = {"PATH": os.environ["PATH"], **{each["name"]: each["value"] for each in container.get("env", [])}}
        for source in container.get("envFrom", []):
            environment |= self.documents["ConfigMap", source["configMapRef"]["name"]]["data"]
        environment |= SETTINGS | {"OBJECTS_URL": f"file://{self.folder}/objects"}
        command = [*container.get("command", []), *container.get("args", [])]

        def place(text: str) -> str:
            # Longest first: the name of one folder can be the beginning of another's.
            for path in sorted(places, key=len, reverse=True):
                if text == path or text.startswith(f"{path}/"):
                    return places[path] + text[len(path) :]
            return text

        return [place(each) for each in command], {key: place(each) for key, each in environment.items()}, pod

    def mount(self, pod: Document, name: str, mounted: Document) -> Path:
        """A folder with what the volume has."""
        folder = self.folder / name / mounted["name"]
        folder.mkdir(parents=True, exist_ok=True)
        for volume in (each for each in pod["volumes"] if each["name"] == mounted["name"]):
            files: dict[str, str] = {}
            sources = [source["secret"]["name"] for source in volume.get("projected", {}).get("sources", [])]
            for secret in (*sources, *([volume["secret"]["secretName"]] if "secret" in volume else [])):
                files |= self.documents["Secret", secret]["stringData"]
            if "configMap" in volume:
                files |= self.documents["ConfigMap", volume["configMap"]["name"]]["data"]
            for file, text in files.items():
                (folder / file).write_text(re.sub(r"@([\w-]+:\d+)/", self._resolve, text))
        return folder

    def _resolve(self, found: re.Match[str]) -> str:
        return f"@{self.addresses[found[1]]}/"

    @contextmanager
    def run(self, kind: str, name: str, *arguments: str, **environment: str) -> Iterator[Pod]:
        command, variables, pod = self.build_pod(kind, name)
        program = [sys.executable, "-I", "-m", ENTRYPOINTS[name]] if name in ENTRYPOINTS else [str(load_redis_binary())]
        own = command if name in ENTRYPOINTS else command[1:]
        log = self.folder / f"{name}.log"
        with log.open("wb") as opened:
            process = subprocess.Popen(
                [*program, *own, *arguments], env=variables | environment, stdout=opened, stderr=opened
            )
        try:
            yield Pod(process, log, pod.get("terminationGracePeriodSeconds", 30))
        finally:
            process.kill()
            process.wait(LIMIT_S)

    def create_key(self) -> str:
        """An API key of a person, by a command in the pod for operators."""
        _, variables, _ = self.build_pod("Deployment", "operator")
        command = ["keys", "create", "--tenant", "default", "--project", "default", "--user", "ann"]
        program = [sys.executable, "-I", "-m", ENTRYPOINTS["operator"]]
        run = subprocess.run(
            [*program, *command], env=variables, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S
        )
        return run.stdout.split()[-1]

    def wait_for(self, pod: Pod, kind: str, name: str, port: int) -> bytes:
        """Ask the startup probe and then the readiness probe; returns the answer to the first."""
        [container] = self.documents[kind, f"everturn-{name}"]["spec"]["template"]["spec"]["containers"]
        ends_at = time.monotonic() + START_LIMIT_S
        answers: list[bytes] = []
        for probe in ("startupProbe", "readinessProbe"):
            url = f"http://127.0.0.1:{port}{container[probe]['httpGet']['path']}"
            while True:
                assert pod.process.poll() is None and time.monotonic() < ends_at, pod.log.read_text()[-3000:]
                try:
                    with urlopen(url, timeout=5) as response:
                        answers.append(response.read())
                        break
                except (URLError, ConnectionError):
                    time.sleep(0.2)
        return answers[0]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    printed = subprocess.run(
        [sys.executable, "-I", K8S / "print_secrets.py"], stdout=subprocess.PIPE, check=True, timeout=LIMIT_S
    )
    built = kustomize.build(K8S / "overlays" / "small") + json.loads(printed.stdout)["items"]
    documents = {name_of(each): each for each in built}
    superuser = documents["Cluster", "everturn-postgres"]["spec"]["superuserSecret"]["name"]
    password = documents["Secret", superuser]["stringData"]["password"]
    postgres, port = EmbeddedPostgres(tmp_path / "postgres", password=password, durable=False), load_free_port()
    postgres.start()
    addresses = {
        "everturn-postgres-rw:5432": f"127.0.0.1:{postgres.port}",
        "everturn-valkey:6379": f"127.0.0.1:{port}",
    }
    cluster = Cluster(tmp_path, documents, addresses)
    try:
        with cluster.run("StatefulSet", "valkey", "--bind", "127.0.0.1", "--port", str(port)):
            yield cluster
    finally:
        postgres.stop()


async def test_the_overlay_for_trials_migrates_answers_and_drains(cluster: Cluster):
    port, worker_port = load_free_port(), load_free_port()

    with cluster.run("Job", "migrate") as job:
        assert job.process.wait(LIMIT_S) == 0, job.log.read_text()[-3000:]
    with ExitStack() as stack:
        run = stack.enter_context
        listen = f"127.0.0.1:{worker_port}"
        ingress = run(cluster.run("Deployment", "ingress", HOST="127.0.0.1", PORT=str(port)))
        worker = run(cluster.run("Deployment", "worker", METRICS_LISTEN=listen))
        cluster.wait_for(worker, "Deployment", "worker", worker_port)
        ready = json.loads(cluster.wait_for(ingress, "Deployment", "ingress", port))
        async with EverturnClient(f"http://127.0.0.1:{port}", token=cluster.create_key()) as person:
            accepted = await person.send_message("new", "Hello")
            events = person.follow_turn(accepted.conversation_id, accepted.turn_id, limit_s=START_LIMIT_S)
            followed = [each.turn async for each in events]
        codes = worker.stop(), ingress.stop()

    assert {name for name, part in ready["parts"].items() if part["ok"]} >= {"postgres", "redis", "objects"}
    assert followed[-1] is not None
    assert followed[-1].status == "completed"
    assert codes == (0, 0)
