"""Converts the changing state of a turn into append-only text, as a terminal needs it."""

from collections.abc import Iterator

from everturn.events.fold import is_open
from everturn.events.model import ChatCompaction, ChatPhase
from everturn.events.views import ApprovalView, StepView, TextView, TurnView
from everturn_client.terminal.screen import Piece, Tone
from everturn_client.terminal.wording import (
    render_approval,
    render_compaction,
    render_counts,
    render_end,
    render_file,
    render_phase,
    render_plan,
    render_signal,
    render_sources,
    render_step,
)

_Key = tuple[int, str, int]
_STEP_TONES: dict[str, Tone] = {"started": "info", "completed": "good", "error": "bad"}


class TurnPrinter:
    """Prints one turn: pass it each state in order, and write what it returns. It remembers what was printed.

    `answer_command` is the command to which an approval's id and the answer are appended; without it, questions are
    answered at the prompt. With `holds_answer`, an answer is printed when its turn has ended, because a file or a pipe
    can't take back a text that is withdrawn when a worker is lost.
    """

    def __init__(
        self, *, show_thinking: bool, download_command: str, answer_command: str = "", holds_answer: bool = False
    ) -> None:
        self._show_thinking = show_thinking
        self._download_command = download_command
        self._answer_command = answer_command
        self._holds_answer = holds_answer
        self._printed: dict[_Key, str] = {}
        self._steps: dict[str, str] = {}
        self._plans: dict[str, str] = {}
        self._signals: dict[str, str] = {}
        self._approvals: dict[str, str] = {}
        self._line_key: _Key | None = None
        self._line_tone: Tone | None = None
        self._has_ended = False

    def render(self, turn: TurnView) -> list[Piece]:
        """The text that is new since the last call."""
        return list(self._render(turn))

    def render_compaction(self, compaction: ChatCompaction) -> list[Piece]:
        """A line within the turn's output; it is not part of the turn's state."""
        return list(self._say(render_compaction(compaction), "good" if compaction.status == "completed" else "info"))

    def render_phase(self, phase: ChatPhase) -> list[Piece]:
        """A line about the model that the turn waits for; it is not part of the turn's state."""
        line = render_phase(phase)
        return list(self._say(line)) if line else []

    def end_line(self) -> list[Piece]:
        """End an unfinished line, so that other text can be written."""
        tone, self._line_tone, self._line_key = self._line_tone, None, None
        return [Piece(tone, "\n")] if tone else []

    def _render(self, turn: TurnView) -> Iterator[Piece]:
        yield from self._forget_lost_texts(turn)
        for number in sorted({item.round for item in (*turn.texts, *turn.steps, *turn.approvals)}):
            texts = [text for text in turn.texts if text.round == number and not _is_data(text)]
            yield from self._render_texts([text for text in texts if text.channel != "answer"])
            # Settled approvals are printed before their call; pending ones are printed last.
            asked = [approval for approval in turn.approvals if approval.round == number]
            yield from self._render_approvals([approval for approval in asked if approval.state != "pending"])
            for step in turn.steps:
                if step.round == number:
                    yield from self._render_step(step)
            yield from self._render_approvals([approval for approval in asked if approval.state == "pending"])
            if not (self._holds_answer and is_open(turn)):
                yield from self._render_texts([text for text in texts if text.channel == "answer"])
        for plan in turn.plans:
            shown = render_plan(plan)
            if self._plans.get(plan.plan_id) != shown:
                self._plans[plan.plan_id] = shown
                yield from self._say(shown)
        for signal in turn.signals:
            if self._signals.get(signal.signal_id) != signal.state:
                self._signals[signal.signal_id] = signal.state
                if line := render_signal(signal):
                    yield from self._say(line)
        if not is_open(turn) and not self._has_ended:
            self._has_ended = True
            yield from self._render_end(turn)

    def _forget_lost_texts(self, turn: TurnView) -> Iterator[Piece]:
        """Forget texts that a rewind withdrew or replaced: they will be sent again."""
        present = {(text.round, text.channel, text.instance): text.text for text in turn.texts}
        lost = [key for key, text in self._printed.items() if not present.get(key, "").startswith(text)]
        if lost:
            yield from self._say("↺ Uncommitted text was withdrawn; the agent is writing it again.")
        for key in lost:
            del self._printed[key]

    def _render_texts(self, texts: list[TextView]) -> Iterator[Piece]:
        for text in texts:
            key = (text.round, text.channel, text.instance)
            printed = self._printed.get(key, "")
            news = text.text[len(printed) :]
            is_first = key not in self._printed
            self._printed[key] = text.text
            if text.marker == "canvas":
                if is_first:
                    yield from self._say(f"✎ writing {text.artifact or 'a file'}")
            elif news and (self._show_thinking or text.channel != "thinking"):
                yield from self._append(key, _tone_of(text), news, begins=not printed.strip())

    def _append(self, key: _Key, tone: Tone, news: str, *, begins: bool) -> Iterator[Piece]:
        if key != self._line_key:
            yield from self.end_line()
            news = news.lstrip("\n")
        if news:
            yield Piece(tone, news, begins)
            self._line_key = key
            self._line_tone = None if news.endswith("\n") else tone

    def _render_step(self, step: StepView) -> Iterator[Piece]:
        printed = self._steps.get(step.step)
        if printed == step.status:
            return
        self._steps[step.step] = step.status
        if printed is None and step.status != "started":
            # It ended before the first state was read; the output is the same as for one who saw it begin.
            yield from self._say(render_step(step.model_copy(update={"status": "started"})))
        yield from self._say(render_step(step), _STEP_TONES[step.status])

    def _render_approvals(self, approvals: list[ApprovalView]) -> Iterator[Piece]:
        for approval in approvals:
            if self._approvals.get(approval.approval_id) != approval.state:
                self._approvals[approval.approval_id] = approval.state
                yield from self._say(render_approval(approval, self._answer_command))

    def _render_end(self, turn: TurnView) -> Iterator[Piece]:
        end = render_end(turn)
        if end:
            yield from self._say(end, "bad" if turn.error else "info")
        if turn.citations:
            yield from self._say(render_sources(turn.citations))
        if turn.files:
            yield from self._say("Files:")
        for file in turn.files:
            yield from self._say(render_file(file, self._download_command))
        if turn.followups:
            yield from self._say("\n".join(["You might ask:", *(f"  {item}" for item in turn.followups)]))
        yield from self._say(render_counts(turn))

    def _say(self, text: str, tone: Tone = "info") -> Iterator[Piece]:
        yield from self.end_line()
        yield Piece(tone, f"{text}\n")


def _is_data(text: TextView) -> bool:
    """Whether it is for programs: JSON of a workflow's channel, unless it is shown on the canvas."""
    return text.format == "json" and text.marker != "canvas" and text.channel != "timeline_text"


def _tone_of(text: TextView) -> Tone:
    match text.channel:
        case "answer":
            return "answer"
        case "thinking":
            return "thinking"
        case _:
            return "info"
