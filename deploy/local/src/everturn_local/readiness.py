"""Whether the platform behind an address says that it is ready: asks the ingress, which asks the others."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

ANSWER_LIMIT_S: Final = 10.0
POLL_S: Final = 0.5
MAX_ANSWER_BYTES: Final = 1 << 20
ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 what an operator may have told us to bind
_DIRECT: Final = build_opener(ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Readiness:
    """`missing` in words, empty when all is there; `failing` are parts that the platform does without for now."""

    missing: str
    failing: Sequence[str] = ()


def build_url(bind: str, port: int) -> str:
    """Where this machine reaches what is bound there."""
    host = ANYWHERE.get(bind, f"[{bind}]" if ":" in bind else bind)
    return f"http://{host}:{port}"


def wait_ready(look: Callable[[], Readiness], *, limit_s: float) -> Readiness:
    """Until nothing is missing, or the limit is over; what was found last."""
    deadline = time.monotonic() + limit_s
    while (found := look()).missing and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return found


def load_readiness(url: str, workers: int) -> Readiness:
    """As the ingress tells it now. It may count workers that ended some seconds ago."""
    try:
        with _DIRECT.open(f"{url}/readyz", timeout=ANSWER_LIMIT_S) as answer:
            told: dict[str, Any] = json.loads(answer.read(MAX_ANSWER_BYTES))
    except (OSError, HTTPException, ValueError) as error:
        return Readiness(f"{url} is not ready: {error}.")
    there = len(told["workers"] or ())
    failing = [f"{name}: {part['detail']}" for name, part in told["parts"].items() if not part["ok"]]
    return Readiness(f"{there} of {workers} workers are there." if there < workers else "", failing)
