"""Whether the platform behind a URL is ready: queries the ingress, which checks the other parts."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

ANSWER_LIMIT_S: Final = 10.0
POLL_S: Final = 0.5
MAX_ANSWER_BYTES: Final = 1 << 20
ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - addresses that an operator can bind
_DIRECT: Final = build_opener(ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Readiness:
    """`missing` as text, empty when nothing is missing; `failing` are parts that the platform can do without for
    now."""

    missing: str
    failing: Sequence[str] = ()


def build_url(bind: str, port: int) -> str:
    """The URL with which this machine reaches a server bound there."""
    host = ANYWHERE.get(bind, f"[{bind}]" if ":" in bind else bind)
    return f"http://{host}:{port}"


def reach_url(url: str) -> str:
    """The URL with which this machine reaches an ingress that reports `url`."""
    parts = urlsplit(url)
    return build_url(parts.hostname or "", parts.port or 80)


def wait_ready(check: Callable[[], Readiness], *, limit_s: float) -> Readiness:
    """Poll until nothing is missing or the limit is over; returns the last result."""
    deadline = time.monotonic() + limit_s
    while (found := check()).missing and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return found


def load_readiness(url: str, workers: int) -> Readiness:
    """The ingress's current report. It can include workers that ended some seconds ago."""
    try:
        with _DIRECT.open(f"{url}/readyz", timeout=ANSWER_LIMIT_S) as answer:
            report: dict[str, Any] = json.loads(answer.read(MAX_ANSWER_BYTES))
    except HTTPError as error:
        return Readiness(f"{url} is not ready: {_find_cause(error)}.")
    except (OSError, HTTPException, ValueError) as error:
        return Readiness(f"{url} is not ready: {error}.")
    there = len(report["workers"] or ())
    return Readiness(f"{there} of {workers} workers are running." if there < workers else "", _find_failing(report))


def _find_cause(error: HTTPError) -> str:
    """The failing parts if the response names them, otherwise its status."""
    try:
        return "; ".join(_find_failing(json.loads(error.read(MAX_ANSWER_BYTES)))) or str(error)
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return str(error)


def _find_failing(report: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {part['detail'] or 'does not respond'}" for name, part in report["parts"].items() if not part["ok"]
    ]
