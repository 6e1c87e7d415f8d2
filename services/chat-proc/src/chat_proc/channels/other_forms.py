"""Reads the text of replies under the codecs `native` and `json`: it is the answer, or it has actions in another form,
in channels or as JSON. Models write such replies because they imitate an earlier turn under another codec, or a format
from their training."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from chat_proc.channels.actions import Action, Decision, Problem, StreamedAnswer
from chat_proc.channels.citations import CitationReplacer, index_sources
from chat_proc.channels.decision_problems import DecisionLimits, choose_actions, explain_nothing
from chat_proc.channels.decision_stream import DecisionStream
from chat_proc.channels.json_actions import find_json_actions, read_text_before_actions
from chat_proc.channels.pieces import AnswerText, AnswerWithdrawn, DecisionPiece, ThinkingText
from chat_proc.channels.prose import SETTLED_CHARS, read_closing_text, read_usable_text
from chat_proc.channels.reply_parts import ProseAnswer, ReplyText, cite_answer, show_whole
from everturn.models.port import FinishReason
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason


class TextReply:
    """The text of one reply. Its owner takes all text of the reply from `text`, and feeds `prose` what may be prose.

    A reply that has neither an action nor an answer is `unusable`; `wanted` says what to write instead of an empty one.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        sources: Iterable[Source],
        limits: DecisionLimits,
        *,
        unusable: Problem,
        wanted: str,
        settled_after: int = SETTLED_CHARS,
        ignores_calls: bool = False,
    ) -> None:
        self._names = names
        self._rows = tuple(sources)
        self._limits = limits
        self._unusable = unusable
        self._wanted = wanted
        self._ignores_calls = ignores_calls
        self.text = ReplyText(limits.max_reply_chars)
        self.sources = index_sources(self._rows)
        self.prose = ProseAnswer(CitationReplacer(self.sources), settled_after=settled_after)

    def finish(self, reason: FinishReason, *, interrupted: bool) -> tuple[list[DecisionPiece], Decision]:
        """End a reply whose actions, if any, are in the form of another codec."""
        raw, stopped_by = self.text.raw, self.text.find_stop(reason)
        cut = interrupted or stopped_by is not None
        has_actions = bool(find_json_actions(raw, self._names))
        if has_actions:
            pieces = self.prose.withdraw()
        else:
            pieces, answer = self.prose.finish(complete=not cut)
            if answer is not None:
                return pieces, decide_answer(raw, answer, stopped_by)
        other = self._read_other_form(raw, reason, interrupted=cut)
        if other is None:
            other = self.answer_with_text(reason, has_actions=has_actions) if self._ignores_calls else None
        if other is None:
            nothing = self.decide_nothing(reason)
            return pieces, replace(nothing, outside="") if has_actions else nothing
        return [*pieces, *other[0]], replace(other[1], stopped_by=stopped_by)

    def answer_with_text(
        self, reason: FinishReason, *, has_actions: bool
    ) -> tuple[list[DecisionPiece], Decision] | None:
        """The text of a reply as its answer where calls are ignored, up to its actions if it has any; None if there is
        none."""
        raw = self.text.raw
        said = read_usable_text(read_text_before_actions(raw)) if has_actions else read_closing_text(raw)
        if not said:
            return None
        answer = cite_answer(self.sources, said)
        return show_whole(answer), decide_answer(self.text.raw, answer, self.text.find_stop(reason))

    def decide_nothing(self, reason: FinishReason, unusable: Problem | None = None) -> Decision:
        """The decision of a reply that has neither an action nor an answer. `unusable` is a more precise problem than
        the one given to the constructor."""
        raw, stopped_by = self.text.raw, self.text.find_stop(reason)
        unusable = unusable or self._unusable
        problem = explain_nothing(raw, stopped_by, self._limits, unusable=unusable, wanted=self._wanted)
        return Decision(raw, outside=raw, problems=(problem,), stopped_by=stopped_by)

    def _read_other_form(
        self, text: str, reason: FinishReason, *, interrupted: bool
    ) -> tuple[list[DecisionPiece], Decision] | None:
        """The pieces of a whole reply, and its decision; None if it has neither an action nor an answer.

        Which of several actions count does not depend on what a codec allows in one reply.
        """
        limits = replace(self._limits, fanout=None, one_thinking=False, stops_early=False)
        stream = DecisionStream(names=self._names, sources=self._rows, limits=limits)
        pieces = stream.feed(text)
        last, decision = stream.finish(reason, interrupted=interrupted)
        pieces = _drop_withdrawn([*pieces, *last])
        if any(problem.kind != "two_actions" for problem in decision.fatal_problems):
            # As in channels, an answer that can be read counts, whatever else is wrong with the reply.
            return (pieces, decide_answer(text, decision.answer, None)) if decision.answer else None
        chosen = choose_actions(stream.readings or decision.actions, ignores_calls=self._ignores_calls)
        if not chosen.indexes:
            return None
        programs = [
            replace(program, for_action=chosen.indexes.index(program.for_action))
            for program in decision.programs
            if program.for_action in chosen.indexes
        ]
        beside = decision.beside
        if decision.outside and not beside and (beside := read_usable_text(decision.outside)):
            pieces.append(ThinkingText(beside, 0))
        dropped = [problem for problem in decision.problems if problem.kind == "answer_with_call"]
        decision = replace(
            decision,
            actions=tuple(decision.actions[index] for index in chosen.indexes),
            programs=tuple(programs),
            outside="",
            beside=beside,
            problems=tuple(dict.fromkeys((*chosen.problems, *dropped))),
        )
        return pieces, decision


def _drop_withdrawn(pieces: Sequence[DecisionPiece]) -> list[DecisionPiece]:
    """The pieces of a whole reply without the parts of an answer that it withdraws."""
    last = max((index for index, piece in enumerate(pieces) if isinstance(piece, AnswerWithdrawn)), default=-1)
    before = [piece for piece in pieces[: last + 1] if not isinstance(piece, AnswerText | AnswerWithdrawn)]
    return [*before, *pieces[last + 1 :]]


def decide_answer(
    raw: str,
    answer: StreamedAnswer,
    stopped_by: CutReason | None,
    *,
    beside: str = "",
    problems: tuple[Problem, ...] = (),
) -> Decision:
    """The decision of a reply that is an answer."""
    actions = (Action("complete", final_answer=answer.raw),)
    return Decision(raw, actions, answer=answer, beside=beside, problems=problems, stopped_by=stopped_by)
