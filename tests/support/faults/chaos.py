"""The fixture of chaos tests."""

import json
import time
from dataclasses import dataclass

import httpx2
from platform_harness.harness import Harness

from everturn_local.supervision.platform import Platform
from faults.links import Links

ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Chaos:
    """A harness whose clients and services communicate over links that a test can break."""

    harness: Harness
    links: Links

    @property
    def platform(self) -> Platform:
        return self.harness.platform

    async def send_file(self) -> httpx2.Response:
        """One message with a file to a new conversation, through the first ingress, without a second attempt."""
        parts = [
            ("message", (None, json.dumps({"text": "script:plain please"}).encode(), "application/json")),
            ("files", ("sales.csv", f"at\n{time.time()}\n".encode(), "text/csv")),
        ]
        async with self.open_http() as http:
            return await http.post("/conversations/default/default/new/messages", files=parts)

    def open_http(self) -> httpx2.AsyncClient:
        """To the first ingress."""
        return httpx2.AsyncClient(base_url=self.links.urls[0], trust_env=False, timeout=ANSWER_S)


def check_refused(answer: httpx2.Response) -> None:
    """It says that it can be sent again later, and when."""
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert int(answer.headers["retry-after"]) >= 1
