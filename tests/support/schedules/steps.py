"""What may happen in a schedule, and how one is drawn from a seed. Pure: the same seed gives the same schedule."""

import random
from collections.abc import Callable
from dataclasses import dataclass

CONVERSATIONS = 4
STEPS = 24
INGRESSES = ("ingress-1", "ingress-2")
WORKERS = ("worker-1", "worker-2")
SERVERS = ("postgres", "redis")
SCRIPTS = ("plain", "slow", "write")


@dataclass(frozen=True, slots=True)
class Say:
    """A message to one of the conversations, through one of the ingresses."""

    conversation: int
    ingress: int
    script: str


@dataclass(frozen=True, slots=True)
class SaySignal:
    """A signal into the conversation's turn, if one is open; a blank steer stops it."""

    conversation: int
    ingress: int
    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class ChangeSignal:
    """Edit the last signal of the conversation, or take it back; too late is no error."""

    conversation: int
    ingress: int
    text: str | None


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL; the supervisor of the part restarts it."""

    part: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """SIGSTOP, and SIGCONT after a while, during which the schedule goes on."""

    part: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Drain:
    """SIGTERM, its exit, and a start."""

    part: str


@dataclass(frozen=True, slots=True)
class Empty:
    """Redis forgets everything."""


@dataclass(frozen=True, slots=True)
class Cut:
    """All connections between a service and a server break; or, without a server, those of clients to an ingress."""

    service: str
    server: str | None


@dataclass(frozen=True, slots=True)
class Worsen:
    """A link is slow, silent or refused for a while; what was silent is cut when it ends."""

    service: str
    server: str | None
    how: str
    for_s: float


Step = Say | SaySignal | ChangeSignal | Kill | Freeze | Drain | Empty | Cut | Worsen


@dataclass(frozen=True, slots=True)
class Timed:
    """A step and how long after the one before it."""

    after_s: float
    step: Step


def build_schedule(seed: int) -> tuple[Timed, ...]:
    """It begins with a message to each conversation."""
    dice = random.Random(seed)
    opening = [Say(n, dice.randrange(2), dice.choice(SCRIPTS)) for n in range(CONVERSATIONS)]
    rest = [_draw(dice) for _ in range(STEPS)]
    return tuple(Timed(round(dice.uniform(0, 0.35), 3), step) for step in (*opening, *rest))


def _draw(dice: random.Random) -> Step:
    where = dice.randrange(CONVERSATIONS), dice.randrange(2)
    for_s = round(dice.uniform(0.2, 4.0), 2)
    draws: list[tuple[int, Callable[[], Step]]] = [
        (22, lambda: Say(*where, dice.choice(SCRIPTS))),
        (22, lambda: SaySignal(*where, *dice.choice(_SIGNALS))),
        (8, lambda: ChangeSignal(*where, dice.choice([None, "Changed to something else.", "Stop now."]))),
        (10, lambda: Kill(dice.choice(WORKERS))),
        (4, lambda: Kill(dice.choice(INGRESSES))),
        (3, lambda: Kill(dice.choice(SERVERS))),
        (8, lambda: Freeze(dice.choice((*WORKERS, *INGRESSES, *SERVERS)), for_s)),
        (4, lambda: Drain(dice.choice((*WORKERS, *INGRESSES)))),
        (3, Empty),
        (8, lambda: Cut(*_draw_link(dice))),
        (8, lambda: Worsen(*_draw_link(dice), dice.choice(("delay", "drip", "silence", "refuse")), for_s)),
    ]
    weights = [weight for weight, _ in draws]
    return dice.choices([draw for _, draw in draws], weights)[0]()


_SIGNALS = (("followup", "And one thing more."), ("steer", "Be brief."), ("steer", ""), ("cancel", ""))


def _draw_link(dice: random.Random) -> tuple[str, str | None]:
    service = dice.choice((*WORKERS, *INGRESSES))
    in_front = service in INGRESSES and dice.random() < 0.5
    return service, None if in_front else dice.choice(SERVERS)
