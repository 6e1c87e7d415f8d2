"""One conversation's events over connections that break."""

import asyncio
import random
from contextlib import aclosing

import httpx2
import pytest
from conftest import SmallServer

from everturn.model import block_bodies as bodies
from everturn.model.turns import Outcome
from everturn.testing.stories import Story
from everturn.wire.events import Envelope
from everturn_client.backoff import Timings
from everturn_client.errors import ProblemError, Unreachable
from everturn_client.event_stream import EventStream
