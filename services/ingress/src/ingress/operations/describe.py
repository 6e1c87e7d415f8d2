"""`python -m ingress describe`: prints the schemas of requests, responses and events, without any server."""

import argparse
import json
import sys
from typing import Any

from ingress.app import build_routes
from ingress.stream.event_schemas import build_event_schemas

HELP = "Print the schemas of what clients send and receive, in calls and as events, as JSON."


def build_description() -> dict[str, Any]:
    """JSON Schemas by name: `calls` are those of the OpenAPI document; in `events`, `Event` is the schema of one
    line."""
    return {"calls": build_routes().openapi()["components"]["schemas"], "events": build_event_schemas()}


def describe(_: argparse.Namespace) -> int:
    """Exit status 0. The same sources give the same bytes."""
    sys.stdout.write(json.dumps(build_description(), sort_keys=True, separators=(",", ":")) + "\n")
    return 0
