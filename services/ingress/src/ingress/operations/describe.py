"""`python -m ingress describe`: prints the API's document and the schemas of events, without any server."""

import argparse
import json
import sys
from typing import Any

from ingress.app import build_routes
from ingress.stream.event_schemas import build_event_schemas

HELP = "Print what clients send and receive: the OpenAPI document and the schemas of the events, as JSON."


def build_description() -> dict[str, Any]:
    """`openapi` is the document that a server shows, `events` are schemas by name, of which `Event` is the first."""
    return {"openapi": build_routes().openapi(), "events": build_event_schemas()}


def describe(_: argparse.Namespace) -> int:
    """Exit status 0. The same sources give the same bytes."""
    sys.stdout.write(json.dumps(build_description(), sort_keys=True, separators=(",", ":")) + "\n")
    return 0
