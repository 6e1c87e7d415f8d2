from chat_proc.agent.generation import RoundTexts
from everturn.events.model import AnyEvent, ChatDelta, ChatPhase


class Said:
    def __init__(self) -> None:
        self.events: list[tuple[AnyEvent, int | None]] = []

    def emit(self, data: AnyEvent, round_number: int | None) -> None:
        self.events.append((data, round_number))

    @property
    def phases(self) -> list[ChatPhase]:
        return [data for data, _ in self.events if isinstance(data, ChatPhase)]

    @property
    def deltas(self) -> list[ChatDelta]:
        return [data for data, _ in self.events if isinstance(data, ChatDelta)]


def test_pieces_are_numbered_within_their_channel_instance() -> None:
    said = Said()
    texts = RoundTexts(said.emit, 3, lambda: "t0")

    texts.say("answer", 0, "a", marker="answer")
    texts.say("thinking", 0, "x", marker="thinking")
    texts.say("answer", 0, "b", marker="answer")

    assert [(delta.channel, delta.index, delta.text) for delta in said.deltas] == [
        ("answer", 0, "a"),
        ("thinking", 0, "x"),
        ("answer", 1, "b"),
    ]
    assert {round_number for _, round_number in said.events} == {3}


def test_an_empty_piece_is_not_sent() -> None:
    said = Said()
    texts = RoundTexts(said.emit, 1, lambda: "t0")

    texts.say("answer", 0, "", marker="answer")

    assert said.events == []
    assert texts.raw == {}


def test_completing_ends_each_text_once() -> None:
    said = Said()
    texts = RoundTexts(said.emit, 1, lambda: "t0")
    texts.say("answer", 0, "a", marker="answer")

    texts.complete()
    texts.complete()

    assert [(delta.index, delta.completed) for delta in said.deltas] == [(0, False), (1, True)]


def test_thinking_ends_before_the_answer_or_with_the_reply() -> None:
    answered, silent = Said(), Said()
    texts = RoundTexts(answered.emit, 1, lambda: "t0")
    texts.begin()
    texts.say("thinking", 1, "Then that.", marker="thinking")
    texts.say("thinking", 0, "First this.", marker="thinking")
    texts.say("answer", 0, "a", marker="answer")
    texts.complete()
    texts = RoundTexts(silent.emit, 1, lambda: "t0")
    texts.begin()
    texts.complete()

    called, thought = ChatPhase(phase="model_called"), ChatPhase(phase="model_thought", thinking="")
    ended = thought.model_copy(update={"thinking": "First this.\n\nThen that."})
    assert [data for data, _ in answered.events[:1]] == [called]
    assert [data for data, _ in answered.events[3:5]] == [ended, answered.deltas[2]]
    assert answered.phases == [called, ended]
    assert [data for data, _ in silent.events] == [called, thought]


def test_after_an_answer_is_withdrawn_the_call_is_announced_again() -> None:
    said = Said()
    texts = RoundTexts(said.emit, 1, lambda: "t0")
    texts.begin()
    texts.say("thinking", 0, "x" * 30_000, marker="thinking")
    texts.say("answer", 0, "a", marker="answer")
    said.events.clear()

    texts.show_again(without="answer")
    texts.complete()

    (called, _), (shown, _), (thought, _), *_ = said.events
    assert called == ChatPhase(phase="model_called")
    assert isinstance(shown, ChatDelta) and len(shown.text) == 30_000
    assert isinstance(thought, ChatPhase) and thought.thinking == "x" * 20_000


def test_texts_and_their_first_times_can_be_read() -> None:
    times = iter(["t1", "t2", "t3"])
    texts = RoundTexts(Said().emit, 1, lambda: next(times))

    texts.say("thinking", 1, "one ", marker="thinking")
    texts.say("thinking", 0, "other", marker="thinking")
    texts.say("thinking", 1, "two", marker="thinking")

    assert texts.text("thinking", 1) == "one two"
    assert texts.first_ts("thinking", 1) == "t1"
    assert texts.instances("thinking") == [0, 1]
    assert texts.text("answer") == ""


def test_raw_texts_can_be_read() -> None:
    texts = RoundTexts(Said().emit, 1, lambda: "t0")

    texts.say("thinking", 0, "  \n", marker="thinking", trim_start=True)
    texts.say("thinking", 0, " Hm", marker="thinking", trim_start=True)
    texts.say("answer", 0, "A", marker="answer")
    texts.say("canvas", 0, "see ", marker="canvas", raw="see [[S:")
    texts.say("canvas", 0, "", marker="canvas", raw="1")
    texts.say("canvas", 0, "[a](https://a.example)", marker="canvas", raw="]]")

    assert texts.raw == {("thinking", 0): "Hm", ("answer", 0): "A", ("canvas", 0): "see [[S:1]]"}
    assert texts.text("canvas") == "see [a](https://a.example)"
