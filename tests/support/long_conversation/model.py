"""A model that works through the turns of a world, and later finds what was planted by what its requests show."""

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from turn_harness.replies import answer, call

from everturn.models.port import (
    ContextLimitExceeded,
    ModelPiece,
    ModelRequest,
    ModelTraits,
    ModelUsage,
    ReplyFinished,
    TextDelta,
    TextPart,
)
from long_conversation.session import LongConversation
from long_conversation.workload import Fact, Place, World

TRAITS = ModelTraits(name="long-session", context_tokens=100_000, images=False, documents=False)
CHARS_PER_TOKEN = 3.5
MAX_READS = 3
_REF = re.compile(r"(?:ar|tc|fi|ws|su|so):[A-Za-z0-9_.:/\[\],-]*[A-Za-z0-9_\]]")
_RESULT = re.compile(r"^\[react\.tool\.result (tc:\S+?)\]", re.MULTILINE)


@dataclass(slots=True)
class Search:
    """How the model looks for one fact."""

    fact: Fact
    reads: int = 0
    asked: set[tuple[str, str | None]] = field(default_factory=set[tuple[str, str | None]])
    searched: bool = False
    found: str | None = None
    steps: list[str] = field(default_factory=list[str])
    """The requests and their outcomes, to find the cause of a miss."""


class LongConversationModel:
    """The test says which turn it is, or which fact is asked for; the rest is in the requests."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.turn = 0
        self.round = 0
        self.search: Search | None = None
        self.on_request: Callable[[ModelRequest], None] = lambda _: None

    @property
    def traits(self) -> ModelTraits:
        return TRAITS

    def begin(self, turn: int, fact: Fact | None = None) -> None:
        """The next request opens a turn; with `fact` the person asks for it."""
        self.turn, self.round = turn, 0
        self.search = Search(fact) if fact else None

    async def look_for(self, session: LongConversation, fact: Fact, turn: int) -> Search:
        """A turn in which the person asks for a fact."""
        self.begin(turn, fact)
        await session.say(fact.question)
        assert self.search is not None
        return self.search

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        text = read_request(request)
        if len(text) / CHARS_PER_TOKEN > TRAITS.context_tokens:
            raise ContextLimitExceeded(f"{len(text)} characters are too many.")
        self.on_request(request)
        self.round += 1
        reply = self._look(text) if self.search else self._work(text)
        yield TextDelta(reply)
        tokens = int(len(text) / CHARS_PER_TOKEN)
        yield ReplyFinished("stop", ModelUsage(input_tokens=tokens, output_tokens=int(len(reply) / CHARS_PER_TOKEN)))

    def _work(self, text: str) -> str:
        world, fact = self._world, self._world.fact_of(self.turn)
        if self.round < world.rounds:
            return self._call(fact)
        said = fact.sentence if fact and fact.place is Place.ANSWER else ""
        return answer(f"Report {self.turn} is done. {said}", summary=self._summary(text, fact))

    def _call(self, fact: Fact | None) -> str:
        where = fact.place if fact and self.round == 2 else None
        if where is Place.FILE and fact:
            params = {"path": f"files/{fact.topic}.md", "channel": "canvas", "content": fact.sentence + "\n" * 3}
            return call("react.write", params, notes="Writing the file.")
        if where is Place.ANCHOR and fact:
            anchor = {"path": f"files/notes/{fact.topic}.md", "channel": "internal", "content": f"[K] {fact.sentence}"}
            return call("react.write", {**anchor, "scratchpad": True})
        return call("sim.report", {"turn": self.turn, "number": self.round}, thinking=f"Step {self.round}.")

    def _summary(self, text: str, fact: Fact | None) -> str:
        """A good model names where things are, not what they say."""
        lines = [f"Goal: report {self.turn}", "Outcome: the report is done"]
        if fact is not None:
            lines += [f"Refs: {self._ref_of(text, fact)} (code of {fact.topic})", f"Retrieval anchors: {fact.topic}"]
        return "\n".join(lines)

    def _ref_of(self, text: str, fact: Fact) -> str:
        turn_id = re.findall(r"^\[TURN (turn_[A-Za-z0-9_-]+)\]", text, re.MULTILINE)[-1]
        match fact.place:
            case Place.PROMPT:
                return f"ar:{turn_id}.user.prompt"
            case Place.ANSWER:
                return f"ar:{turn_id}.assistant.completion"
            case Place.FILE:
                return f"fi:{turn_id}.files/{fact.topic}.md"
            case Place.ANCHOR:
                return f"fi:{turn_id}.files/notes/{fact.topic}.md"
            case Place.SMALL_RESULT | Place.LARGE_RESULT:
                line = re.search(rf"the code of {fact.topic} stands on line (\d+)\.", text)
                refs = [match for match in _RESULT.finditer(text) if line and match.start() < line.start()]
                return f"{refs[-1][1]} line {line[1]}" if line and refs else "none"

    def _look(self, text: str) -> str:
        search = self.search
        assert search is not None
        if known := re.search(rf"The code of {search.fact.topic} is (\d+)\.", text):
            search.found = known[1]
            return answer(f"It is {known[1]}.", summary=f"Goal: code of {search.fact.topic}\nOutcome: found")
        if search.reads >= MAX_READS:
            return answer("I could not find it.")
        search.reads += 1
        item = self._choose(text, search)
        search.steps.append(f"{item} after ...{text[-3500:]}")
        if item is None:
            return call("react.memsearch", {"query": f"code of {search.fact.topic}"})
        return call("react.read", {"items": [item]})

    def _choose(self, text: str, search: Search) -> dict[str, object] | None:
        """A ref that is said to hold the code; None to search, once; then any ref on a line that names the topic."""
        topic = re.escape(search.fact.topic)
        labelled = re.finditer(rf"Refs: ({_REF.pattern})(?: line (\d+))? \(code of {topic}\)", text)
        items = [(match[1], match[2]) for match in labelled]
        if search.searched:
            named = [line for line in text.splitlines() if search.fact.topic in line and "user.prompt" not in line]
            items += [(ref, None) for line in reversed(named) for ref in _REF.findall(line)]
        for ref, line in items:
            if (ref, line) not in search.asked:
                search.asked.add((ref, line))
                return {"path": ref, "line_start": int(line), "line_count": 1} if line else {"path": ref}
        search.searched = True
        return None


def read_request(request: ModelRequest) -> str:
    """All text of a request."""
    return "".join(part.text for message in request.messages for part in message.parts if isinstance(part, TextPart))


class SideModel:
    """Plays the small roles: it always says the same."""

    def __init__(self, reply: str) -> None:
        self._reply = reply
        self.calls = 0

    @property
    def traits(self) -> ModelTraits:
        return TRAITS

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        self.calls += 1
        yield TextDelta(self._reply)
        tokens = int(len(read_request(request)) / CHARS_PER_TOKEN)
        yield ReplyFinished("stop", ModelUsage(input_tokens=tokens, output_tokens=100))
