"""What is said in a very long conversation: its turns, the sizes of its results, and the facts planted in it."""

import random
from dataclasses import dataclass
from enum import StrEnum

WORDS = (
    *("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "harbor", "inlet", "jetty", "kiln", "lagoon"),
    *("meadow", "north", "oasis", "prairie", "quarry", "ridge", "shoal", "tundra", "upland", "vale", "willow", "yard"),
)
LINE_CHARS = 80


class Place(StrEnum):
    """Where a fact is said, once and nowhere else."""

    PROMPT = "prompt"
    ANSWER = "answer"
    SMALL_RESULT = "small_result"
    LARGE_RESULT = "large_result"
    FILE = "file"
    ANCHOR = "anchor"


@dataclass(frozen=True, slots=True)
class Fact:
    """A value under a rare name. `turn` counts from 1."""

    topic: str
    value: str
    turn: int
    place: Place

    @property
    def sentence(self) -> str:
        return f"The code of {self.topic} is {self.value}."

    @property
    def question(self) -> str:
        return f"What is the code of {self.topic}?"


@dataclass(frozen=True, slots=True)
class World:
    """Made from a seed; the same seed says the same."""

    turns: int
    rounds: int
    facts: tuple[Fact, ...]
    seed: int

    def fact_of(self, turn: int) -> Fact | None:
        """The fact planted in a turn."""
        return next((fact for fact in self.facts if fact.turn == turn), None)

    def prompt(self, turn: int) -> str:
        fact = self.fact_of(turn)
        topic = fact.topic if fact else WORDS[turn % len(WORDS)]
        said = f" {fact.sentence}" if fact and fact.place is Place.PROMPT else ""
        return f"Please prepare report {turn} about {topic}.{said}"

    def result_chars(self, turn: int, number: int) -> int:
        """How long a result is: mostly a few thousand characters, one in a hundred a megabyte."""
        chance = random.Random(f"{self.seed}/{turn}/{number}")
        drawn = chance.random()
        if drawn < 0.70:
            return chance.randrange(300, 4_000)
        if drawn < 0.95:
            return chance.randrange(4_000, 40_000)
        return 200_000 if drawn < 0.99 else 1_000_000


def build_world(*, turns: int, rounds: int, facts: int, seed: int = 20) -> World:
    """Facts are spread evenly, their places take turns."""
    chance = random.Random(seed)
    names = [f"{WORDS[n % len(WORDS)].capitalize()}-{n:03d}" for n in range(facts)]
    places = list(Place)
    planted = tuple(
        Fact(name, str(chance.randrange(100_000, 999_999)), 1 + n * turns // facts, places[n % len(places)])
        for n, name in enumerate(names)
    )
    return World(turns, rounds, planted, seed)


def build_report(chars: int, *, turn: int, number: int, fact: Fact | None) -> str:
    """Lines of filler; the fact stands alone on a line three quarters down, and the first line says on which."""
    lines = max(4, chars // LINE_CHARS)
    at = lines * 3 // 4
    body = [
        f"{WORDS[(turn + n) % len(WORDS)]} {n * 7919} of {turn}.{number}".ljust(LINE_CHARS - 1, ".")
        for n in range(lines)
    ]
    if fact is None:
        return f"Report {turn}.{number}\n" + "\n".join(body)
    body[at - 1] = fact.sentence
    return f"Report {turn}.{number}; the code of {fact.topic} stands on line {at + 1}.\n" + "\n".join(body)
