"""The Python client of Everturn: an async SDK, and the terminal client `everturn`."""

from everturn_client.answers import (
    Accepted,
    AcceptedSignal,
    Agent,
    ConversationPage,
    Erased,
    Fork,
    Operation,
    SearchHit,
    SearchPage,
    SignalState,
)
from everturn_client.backoff import Timings
from everturn_client.client import Event, EverturnClient, Followed
from everturn_client.errors import BadAnswer, BadInput, ProblemError, TimedOut, TooMuch, Unreachable
from everturn_client.requests import Connections

__all__ = [
    "Accepted",
    "AcceptedSignal",
    "Agent",
    "BadAnswer",
    "BadInput",
    "Connections",
    "ConversationPage",
    "Erased",
    "Event",
    "EverturnClient",
    "Followed",
    "Fork",
    "Operation",
    "ProblemError",
    "SearchHit",
    "SearchPage",
    "SignalState",
    "TimedOut",
    "Timings",
    "TooMuch",
    "Unreachable",
]
