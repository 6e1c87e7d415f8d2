"""What a container engine still has with our labels, and which pairs a broker still has."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import docker

from everturn.execution.broker_messages import BROKER_FRAME_BYTES, ListPairs, PairList
from everturn.execution.framing import FrameDecoder, encode_frame
from everturn.execution.records import build_message, parse_message

USUAL_ENGINE = "unix:///var/run/docker.sock"
LABEL = "everturn.broker"
WAITING = ("booting", "warm")
ANSWER_LIMIT_S = 20


class View(Protocol):
    """A place where something of a run may be left."""

    def load_left(self) -> frozenset[str]:
        """What is there, in words."""
        ...


class EngineView:
    """All that an engine holds with a label of ours: containers in any state, volumes, networks."""

    def __init__(self, label: str = LABEL, address: str = "") -> None:
        self._client = cast("Any", docker).DockerClient(
            base_url=address or os.environ.get("DOCKER_HOST") or USUAL_ENGINE, timeout=ANSWER_LIMIT_S
        )
        self._filters = {"label": label}

    def load_left(self) -> frozenset[str]:
        return frozenset(
            [f"container {name} ({state})" for name, state in self.load_containers()]
            + [f"volume {name}" for name in self.load_volumes()]
            + [f"network {found.name}" for found in self._client.networks.list(filters=self._filters)]
        )

    def load_containers(self) -> list[tuple[str, str]]:
        """Name and state of each."""
        found = self._client.api.containers(all=True, filters=self._filters)
        # One that is just being removed may have lost its names already.
        return [
            ((entry["Names"] or [entry["Id"]])[0].lstrip("/"), entry["State"])
            for entry in found
            if self._is_there(entry)
        ]

    def _is_there(self, entry: dict[str, Any]) -> bool:
        """An engine that was killed while it removed a container may list it for ever, and answer that it has none."""
        if entry["State"] != "dead":
            return True
        try:
            self._client.api.inspect_container(entry["Id"])
        except docker.errors.NotFound:
            return False
        return True

    def load_volumes(self) -> list[str]:
        return [found.name for found in self._client.volumes.list(filters=self._filters)]

    def close(self) -> None:
        self._client.close()


class BrokerView:
    """What a running broker and its engine hold beside the pairs that wait for a run, which belong there."""

    def __init__(self, socket_path: str, address: str = "") -> None:
        self._socket_path = socket_path
        broker_id = Path(f"{socket_path}.lock").read_text(encoding="ascii")
        self._engine = EngineView(f"{LABEL}={broker_id}", address)

    def load_left(self) -> frozenset[str]:
        return frozenset(self._load_left())

    def _load_left(self) -> Iterator[str]:
        listed = load_pairs(self._socket_path)
        yield from (f"pair of {pair.run_id} ({pair.state})" for pair in listed.pairs if pair.state not in WAITING)
        # One that is being booted may have some of its parts only.
        containers, volumes = len(self._engine.load_containers()), len(self._engine.load_volumes())
        if containers > 2 * listed.total or volumes > listed.total:
            yield f"{containers} containers and {volumes} volumes of {listed.total} pairs that the broker knows"

    def close(self) -> None:
        self._engine.close()


def load_pairs(socket_path: str) -> PairList:
    """Ask a broker for its pairs."""
    decoder = FrameDecoder(BROKER_FRAME_BYTES)
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(ANSWER_LIMIT_S)
        line.connect(socket_path)
        line.sendall(encode_frame(build_message(ListPairs({})), BROKER_FRAME_BYTES))
        while not (frames := decoder.feed(line.recv(1 << 16))):
            pass
    frame = frames[0]
    assert isinstance(frame, dict)
    return parse_message(frame, PairList)
