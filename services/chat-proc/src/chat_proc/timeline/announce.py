"""ANNOUNCE: what holds right now, told anew each round behind everything that a provider caches."""

from collections.abc import Sequence
from dataclasses import dataclass

from chat_proc.timeline.block_text import render_artifact, render_plan
from chat_proc.timeline.files import fold_artifacts
from chat_proc.timeline.plans import open_plans
from everturn.model.artifacts import Artifact, ArtifactKind
from everturn.model.block_bodies import FeedbackBody, SignalBody
from everturn.model.blocks import Block
from everturn.model.ids import TurnId
from everturn.model.plans import PlanSnapshot
from everturn.timeline.inert import escape_line, make_inert

SHOWN_EVENTS = 4
SHOWN_FILES = 30
SHOWN_FEEDBACK = 8
MAX_LINE_CHARS = 120


@dataclass(frozen=True, slots=True)
class Budget:
    """What the turn has used and what it may use. `round` counts from 1; `bonus_rounds` are part of `round_limit`.

    `finalize`: the person has steered, and the rounds left are there to bring the work into order.
    """

    round: int
    round_limit: int
    elapsed_s: float
    wall_time_s: float
    tokens: int
    token_limit: int
    cost_usd: float
    cost_limit_usd: float
    bonus_rounds: int = 0
    finalize: bool = False


@dataclass(frozen=True, slots=True)
class AnnounceState:
    """Everything ANNOUNCE tells. `code` says how programs run here, or why they can't; `now` is ISO 8601 in UTC."""

    turn_id: TurnId
    budget: Budget
    code: str
    now: str
    timezone: str = "UTC"
    plans: tuple[PlanSnapshot, ...] = ()
    events: tuple[Block, ...] = ()
    files: tuple[Artifact, ...] = ()
    feedback: tuple[FeedbackBody, ...] = ()


def build_announce_state(
    blocks: Sequence[Block], turn_id: TurnId, *, budget: Budget, code: str, now: str, timezone: str = "UTC"
) -> AnnounceState:
    """Fold what the timeline knows about the present: open plans, signals, files and feedback."""
    turn_blocks = [block for block in blocks if block.turn_id == turn_id]
    files = (artifact for artifact in fold_artifacts(blocks).values() if artifact.kind is not ArtifactKind.ATTACHMENT)
    return AnnounceState(
        turn_id=turn_id,
        budget=budget,
        code=code,
        now=now,
        timezone=timezone,
        plans=open_plans(blocks, turn_id),
        events=tuple(block for block in turn_blocks if isinstance(block.body, SignalBody)),
        files=tuple(files),
        feedback=tuple(block.body for block in turn_blocks if isinstance(block.body, FeedbackBody)),
    )


def build_announce(state: AnnounceState) -> str:
    """The text, sections in their fixed order. It ends with a line break."""
    budget = state.budget
    sections = [
        f"[ANNOUNCE]\nIteration {min(budget.round, budget.round_limit)}/{budget.round_limit}",
        _budget_section(budget),
        f"[RUNTIME LIMITS]\ncode: {make_inert(state.code)}",
        f"[TEMPORAL CONTEXT]\nuser timezone: {escape_line(state.timezone)}\nnow (UTC): {state.now}",
        _section("OPEN PLANS", [make_inert(render_plan(plan)) for plan in state.plans] or ["none"]),
        _section("LIVE TURN EVENTS", [_event_line(block) for block in state.events[-SHOWN_EVENTS:]]),
        _section("WORKSPACE", _workspace_lines(state)),
        _section("NEW FEEDBACK", [_feedback_line(body) for body in state.feedback[-SHOWN_FEEDBACK:]]),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"[{title}]", *lines)) if lines else ""


def _budget_section(budget: Budget) -> str:
    left = max(0, budget.round_limit - budget.round)
    bonus = f" ({budget.bonus_rounds} of them for messages that came meanwhile)" if budget.bonus_rounds else ""
    steered = "finalize: the person has steered; only react.write, react.patch, react.plan and react.hide may be called"
    lines = [steered] if budget.finalize else []
    lines += [
        f"rounds: this one and {left} more of {budget.round_limit}{bonus}"
        if left
        else "rounds: this is the last one: answer now",
        f"time: {_duration(budget.elapsed_s)} of {_duration(budget.wall_time_s)}",
        f"tokens: {budget.tokens} of {budget.token_limit}",
        f"money: {budget.cost_usd:.4f} of {budget.cost_limit_usd:.2f} USD",
    ]
    return _section("BUDGET", lines)


def _workspace_lines(state: AnnounceState) -> list[str]:
    lines = [f"this turn writes to {state.turn_id}/files/ and {state.turn_id}/outputs/"]
    if len(state.files) > SHOWN_FILES:
        lines.append(f"{len(state.files) - SHOWN_FILES} older files are not listed")
    return lines + [render_artifact(artifact) for artifact in state.files[-SHOWN_FILES:]]


def _event_line(block: Block) -> str:
    text = block.body.text if isinstance(block.body, SignalBody) else ""
    return f"- {block.type.value} {block.ref}: {_one_line(text) or '(no text)'}"


def _feedback_line(body: FeedbackBody) -> str:
    return f"- {body.turn_id} {body.reaction or 'no reaction'} ({body.origin}): {_one_line(body.text) or '(no text)'}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return escape_line(line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + "...")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
