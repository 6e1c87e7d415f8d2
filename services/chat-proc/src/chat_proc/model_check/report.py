"""What a check found, for people and for machines, and the codec that it recommends."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Final

from chat_proc.model_check.playing import CODECS, Outcome
from chat_proc.model_check.tasks import TASKS
from chat_proc.models.calls import sum_usages
from chat_proc.models.roles import ModelChoice
from chat_proc.settings import MIN_CONTEXT_TOKENS
from chat_proc.timeline.compaction.cut import build_context_limits
from everturn.models.port import CodecName, ModelTraits, ModelUsage

MAX_REASON_CHARS: Final = 500
_PREFERENCE: Final[tuple[CodecName, ...]] = ("native", "channels", "json")
"""Which codec is recommended if several do equally well."""
_FORMS: Final[Mapping[str, str]] = {
    "native": "by a forced tool call",
    "json": "by JSON mode",
    "plain": "from plain text",
}
"""How a structured call succeeded, by its level."""
_LINE_END: Final = re.compile(r"\s*[\r\n]\s*")


@dataclass(frozen=True, slots=True)
class CodecReport:
    """What a codec's own calls took. `passed` and `played` count tasks, also those that have no codec. Times are
    medians over the replies with an answer; None if there was none."""

    codec: CodecName
    passed: int
    played: int
    required_failed: int
    calls: int
    usage: ModelUsage
    first_token_s: float | None
    first_word_s: float | None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcomes of a check of one model. `configured` is the codec that its turns have now. `warning` says if its
    context is too small."""

    choice: ModelChoice
    traits: ModelTraits
    configured: CodecName
    outcomes: Sequence[Outcome]
    warning: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all tasks were tried."""
        return len(self.outcomes) == len(TASKS) * len(CODECS) + 1 and not any(
            each.judgement.is_lasting for each in self.outcomes
        )

    @property
    def usage(self) -> ModelUsage:
        """The tokens and costs of all calls."""
        return self._sum_usage(self.outcomes)

    def find(self, number: int, codec: CodecName) -> Outcome | None:
        """The outcome of a task with a codec; None if it was not tried."""
        return next((each for each in self.outcomes if each.number == number and each.codec in (codec, None)), None)

    def sum_up(self, codec: CodecName) -> CodecReport:
        """What one codec achieved."""
        own = [each for each in self.outcomes if each.codec == codec]
        answered = [each for each in own if each.first_word_s is not None]
        tried = [each for each in self.outcomes if each.codec in (codec, None) and each.judgement.status != "skipped"]
        return CodecReport(
            codec,
            passed=sum(each.judgement.status == "ok" for each in tried),
            played=len(tried),
            required_failed=sum(each.required and each.judgement.status != "ok" for each in tried),
            calls=sum(each.calls for each in own),
            usage=self._sum_usage(own),
            first_token_s=_median([each.first_token_s for each in answered]),
            first_word_s=_median([each.first_word_s for each in answered]),
        )

    def find_best(self) -> CodecReport | None:
        """The codec that fails the fewest required tasks, then the one that passes the most tasks, then the first of
        native, channels and json. None if the check ended early, or nothing was passed. It is recommended if it fails
        none."""
        if not self.is_whole:
            return None
        best = min(map(self.sum_up, _PREFERENCE), key=lambda each: (each.required_failed, -each.passed))
        return best if best.passed else None

    @property
    def is_usable(self) -> bool:
        """Whether a codec passes all required tasks."""
        best = self.find_best()
        return best is not None and not best.required_failed

    def _sum_usage(self, outcomes: Sequence[Outcome]) -> ModelUsage:
        return replace(sum_usages([each.usage for each in outcomes]), cost_known=self.traits.has_price)


def _median(times_s: Sequence[float | None]) -> float | None:
    measured = [time_s for time_s in times_s if time_s is not None]
    return round(median(measured), 3) if measured else None


def render_report(report: CheckReport) -> Iterator[str]:
    """The lines for people."""
    yield f"Model: {report.choice.full_name}, with a {describe_context(report.traits)}"
    if report.warning:
        yield f"Warning: {report.warning}."
    yield ""
    names = {each.number: each for each in sorted(report.outcomes, key=lambda each: each.number)}
    rows = [
        [f"{number:>2} {task.name}{' *' if task.required else ''}", *(_cell(report, number, codec) for codec in CODECS)]
        for number, task in names.items()
    ]
    yield from _align([["task", *CODECS], *rows])
    yield "* required"
    yield ""
    yield from _explain(report.outcomes)
    yield from _align([["", *CODECS], *_list_totals([report.sum_up(codec) for codec in CODECS])])
    yield ""
    yield from _conclude(report)


def describe_context(traits: ModelTraits, *, advises: bool = True) -> str:
    """The length of a model's context, and whether it is only assumed."""
    advice = ": set context_tokens in its card" if advises else ""
    assumed = f" (assumed{advice})" if traits.context_assumed else ""
    return f"context of {traits.context_tokens:,} tokens{assumed}"


def explain_small_context(traits: ModelTraits, max_output_tokens: int) -> str:
    """Why the context of a model is too small for turns whose replies may be so long; empty if it is not."""
    reply_tokens = traits.limit_reply(max_output_tokens)
    limits = build_context_limits(
        MIN_CONTEXT_TOKENS, context_tokens=traits.context_tokens, max_output_tokens=reply_tokens
    )
    if limits.max_tokens == MIN_CONTEXT_TOKENS:
        return ""
    return (
        f"the context of {traits.context_tokens:,} tokens is too small for turns: a request needs about "
        f"{MIN_CONTEXT_TOKENS:,}, and the reply up to {reply_tokens:,}"
    )


def _cell(report: CheckReport, number: int, codec: CodecName) -> str:
    outcome = report.find(number, codec)
    return "not tried" if outcome is None else outcome.judgement.status


def _explain(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The reasons; a provider's failure that repeats itself is written once."""
    places: dict[tuple[str, str], list[str]] = {}
    for each in outcomes:
        if each.judgement.reason:
            places.setdefault((each.judgement.status, clean(each.judgement.reason)), []).append(
                f"{each.number} {each.codec or 'any codec'}"
            )
    for (status, reason), where in places.items():
        yield f"{', '.join(where)}: {status}: {reason}"
    if places:
        yield ""


def _list_totals(sums: Sequence[CodecReport]) -> list[list[str]]:
    return [
        ["tasks passed", *(f"{each.passed} of {each.played}" for each in sums)],
        ["model calls", *(f"{each.calls:,}" for each in sums)],
        ["input tokens", *(f"{each.usage.input_tokens:,}" for each in sums)],
        ["output tokens", *(f"{each.usage.output_tokens:,}" for each in sums)],
        ["cost in USD", *(_render_cost(each.usage) for each in sums)],
        ["first token", *(_render_time(each.first_token_s) for each in sums)],
        ["first word shown", *(_render_time(each.first_word_s) for each in sums)],
    ]


def _conclude(report: CheckReport) -> Iterator[str]:
    for each in report.outcomes:
        if each.level:
            yield f"Structured calls: {_FORMS[each.level]}, after {_count_calls(each.calls)}."
    if finished := [each for each in report.outcomes if each.finish is not None]:
        is_estimated = any(each.usage.estimated for each in finished)
        reasons = ", ".join(sorted({each.finish for each in finished if each.finish is not None}))
        usage_is = "usage is not always reported, so tokens are estimated" if is_estimated else "usage is reported"
        yield f"Streaming: {usage_is}; finish reasons: {reasons}."
    usage, calls = report.usage, sum(each.calls for each in report.outcomes)
    seconds = sum(each.took_s for each in report.outcomes)
    cost = f"{_render_cost(usage)} USD" if usage.cost_known else "cost unknown"
    tokens = f"{usage.input_tokens:,} input and {usage.output_tokens:,} output tokens"
    yield f"In total: {_count_calls(calls)}, {tokens}, {cost}, {seconds:.0f} s."
    best = report.find_best()
    if not report.is_whole:
        yield "The check ended early, so no codec is recommended."
    elif best is None:
        yield "No task was passed, so no codec is recommended."
    elif best.required_failed:
        yield (
            f"No codec passes all required tasks; {best.codec} fails the fewest ({best.required_failed}). "
            "Don't use this model for turns."
        )
    else:
        yield f"Recommended codec: {best.codec}. Configured: {report.configured}."


def render_progress(outcome: Outcome) -> str:
    """What follows the name of a task that was played."""
    reason = f": {clean(outcome.judgement.reason)}" if outcome.judgement.reason else ""
    return f"{outcome.judgement.status} after {outcome.took_s:.1f} s{reason}"


def build_json(report: CheckReport) -> Mapping[str, object]:
    """The same for machines."""
    best = report.find_best()
    return {
        "model": report.choice.full_name,
        "context_tokens": report.traits.context_tokens,
        "context_assumed": report.traits.context_assumed,
        "warning": report.warning or None,
        "configured_codec": report.configured,
        "recommended_codec": best.codec if best and not best.required_failed else None,
        "usable": report.is_usable,
        "complete": report.is_whole,
        "codecs": [asdict(report.sum_up(codec)) for codec in CODECS],
        "usage": asdict(report.usage),
        "tasks": [_build_task(each) for each in report.outcomes],
    }


def _build_task(outcome: Outcome) -> Mapping[str, object]:
    fields = asdict(outcome)
    judgement = {**fields.pop("judgement"), "reason": clean(outcome.judgement.reason)}
    return {**fields, **judgement}


def clean(text: str) -> str:
    """A text of a model or provider in one line, without what a terminal would obey."""
    line = "".join(char if char.isprintable() else " " for char in _LINE_END.sub(" ", text)).strip()
    return line if len(line) <= MAX_REASON_CHARS else f"{line[:MAX_REASON_CHARS]}..."


def _align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _count_calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _render_cost(usage: ModelUsage) -> str:
    return f"{usage.cost_usd:.4f}" if usage.cost_known else "unknown"


def _render_time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"
