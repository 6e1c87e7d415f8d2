"""The Python client of Everturn: an async SDK, and the terminal client `everturn`."""

from everturn_client.answers import Accepted, ConversationPage, Erased
from everturn_client.backoff import Timings
from everturn_client.client import EverturnClient, Followed
from everturn_client.errors import BadAnswer, ProblemError, TimedOut, TooMuch, Unreachable

__all__ = [
    "Accepted",
    "BadAnswer",
    "ConversationPage",
    "Erased",
    "EverturnClient",
    "Followed",
    "ProblemError",
    "TimedOut",
    "Timings",
    "TooMuch",
    "Unreachable",
]
