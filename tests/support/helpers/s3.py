"""Servers that speak S3: rclone, which checks signatures and presigned URLs, and moto, which knows more of the API."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import boto3
from botocore.config import Config

from everturn_local.ports import LOOPBACK, load_free_port

BUCKET = "everturn-test"
KEYS = {"AWS_ACCESS_KEY_ID": "everturn-test-key", "AWS_SECRET_ACCESS_KEY": "everturn-test-secret"}
"""What clients of these servers need in their environment."""
START_LIMIT_S = 60.0


@dataclass
class S3Server:
    """A server with one bucket. `client` is for changing what a driver does not know of."""

    process: subprocess.Popen[bytes]
    endpoint: str

    def url(self, prefix: str, *, endpoint: str | None = None, **options: str) -> str:
        """An OBJECTS_URL with a prefix of its own, through another address where one is given."""
        more = "".join(f"&{name}={quote(value, safe='')}" for name, value in options.items())
        address = quote(endpoint or self.endpoint, safe="")
        return f"s3://{BUCKET}/{prefix}?endpoint={address}&region=us-east-1{more}"

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Within the block the server accepts connections and never responds."""
        self.process.send_signal(signal.SIGSTOP)
        # Its threads may still run for a moment, and respond to a request.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def client(self):
        """A client of its own, which changes what the driver does not know of."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            config=Config(read_timeout=10, request_checksum_calculation="when_required"),
        )


@contextmanager
def run_rclone(folder: Path) -> Generator[S3Server]:
    folder.joinpath(BUCKET).mkdir(parents=True)
    key = f"{KEYS['AWS_ACCESS_KEY_ID']},{KEYS['AWS_SECRET_ACCESS_KEY']}"
    options = ["--auth-key", key, "--config", os.devnull]
    program = str(Path(sys.executable).with_name("rclone"))
    with _run(lambda port: [program, "serve", "s3", "--addr", f"{LOOPBACK}:{port}", *options, str(folder)], folder) as (
        process,
        endpoint,
    ):
        yield S3Server(process, endpoint)


@contextmanager
def run_moto(folder: Path) -> Generator[S3Server]:
    folder.mkdir(parents=True)
    program = str(Path(sys.executable).with_name("moto_server"))
    with _run(lambda port: [program, "-H", LOOPBACK, "-p", str(port)], folder) as (process, endpoint):
        server = S3Server(process, endpoint)
        server.client().create_bucket(Bucket=BUCKET)
        yield server


@contextmanager
def _run(build: Callable[[int], list[str]], folder: Path) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    port = load_free_port()
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        process = subprocess.Popen(build(port), env=env, stdout=log, stderr=log)
    try:
        _wait_for(process, port)
        yield process, f"http://{LOOPBACK}:{port}"
    finally:
        process.kill()
        process.wait(10)


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            socket.create_connection((LOOPBACK, port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
