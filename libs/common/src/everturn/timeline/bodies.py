"""The typed bodies of timeline blocks: one small class for each thing that can happen in a turn."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from everturn.core.errors import Problem
from everturn.core.ids import ApprovalId, SignalId
from everturn.files.model import Artifact
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.sources import Citation
from everturn.timeline.turns import CutReason, Outcome, TurnUsage


class Body(BaseModel):
    """Base of all bodies: frozen, and rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TextBody(Body):
    """Base of the bodies of which the model reads the `text`."""

    text: str


class UnknownBody(Body):
    """A body that only a newer version can parse; its bytes stay in the block."""


class TurnHeaderBody(Body):
    """The turn begins. `ordinal` counts from 1 in the conversation."""

    ordinal: int
    bundle_id: str | None = None


class PromptBody(TextBody):
    """The person's message, verbatim."""


class AttachmentBody(Body):
    """A file that the person attached; its bytes are in the object store."""

    artifact: Artifact


class AttachmentTextBody(TextBody):
    """The beginning of a text attachment, for the model. `total_chars` counts the whole file, None if unknown."""

    filename: str
    total_chars: int | None


class SignalBody(TextBody):
    """A followup or a steer, as folded into the turn."""

    signal_id: SignalId
    attachments: tuple[Artifact, ...] = ()


class EventBody(Body):
    """An external event, such as a submitted form or an alert; `kind` is the kind of event.

    A `reactive` event asks the model to act on it; any other is only recorded. `credit` is the number of rounds that it
    adds to its turn.
    """

    signal_id: SignalId
    kind: str
    text: str
    payload: dict[str, Any] = {}
    reactive: bool = True
    credit: int = 0
    attachments: tuple[Artifact, ...] = ()


class RoundStartBody(Body):
    """A round begins; `limit` is the current maximum number of rounds of the turn."""

    limit: int


class ThinkingBody(TextBody):
    """The model's thinking. `instance` distinguishes several thinking channels of one round."""

    instance: int = 0


class NotesBody(TextBody):
    """The notes of an action."""


class NoticeBody(TextBody):
    """A message from the runtime to the model, such as what to fix in its next reply."""

    code: str


class RawDecisionBody(TextBody):
    """A reply that could not be used, verbatim."""

    code: str


class ToolCallBody(Body):
    """A tool is called. `shown` is the written text as clients saw it, if citations were replaced in it.

    A call that a program made has the call of its run as `parent`; the model learns of it from the run's result.
    """

    tool_id: str
    params: dict[str, Any]
    shown: str | None = None
    parent: str | None = None


class ToolCodeBody(TextBody):
    """The program of a call, verbatim."""


class StoredText(BaseModel):
    """A long text in the object store, as UTF-8. `sha256` in hex is over its `bytes`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    object_key: str
    sha256: str
    chars: int
    bytes: int


class ToolResultBody(Body):
    """The result of a call. `text` is what the model reads; `ambiguous` means that the call may have taken effect.

    If `whole` is set, `text` is a preview of it. `untrusted` marks text of unknown origin; `parent` is as in the call.
    """

    tool_id: str
    status: Literal["ok", "error", "ambiguous", "cancelled"]
    text: str
    artifacts: tuple[Artifact, ...] = ()
    data: dict[str, Any] | None = None
    duration_ms: int = 0
    whole: StoredText | None = None
    untrusted: bool = False
    parent: str | None = None


class ApprovalRequestBody(Body):
    """A call needs a person's approval. `params` are shown to the person, without secrets; `cut` means that some are
    left out. `args_hash` covers the tool and the exact parameters. `expires_at` is by the database's clock.
    `explanation` gives the person the reason; `addresses` are the web addresses to approve, in canonical form.
    """

    approval_id: ApprovalId
    tool_id: str
    params: dict[str, Any]
    args_hash: str
    expires_at: str
    cut: bool = False
    explanation: str = ""
    addresses: tuple[str, ...] = ()


class ApprovalOutcomeBody(Body):
    """The outcome of an approval. `signal_id` and `reason` are those of the person's answer."""

    approval_id: ApprovalId
    state: Literal["approved", "denied", "expired", "withdrawn"]
    reason: str = ""
    signal_id: SignalId | None = None


class PlanBody(Body):
    """A snapshot of a plan after a change."""

    plan: PlanSnapshot


class PlanAckBody(TextBody):
    """The step marks from notes, for a person to read."""

    plan_id: str


class CompletionBody(TextBody):
    """An answer. `text` is the model's, `shown` is what clients saw if it differs; `instance` is as in the deltas.

    `sources_used` are the numbers that it cites, `citations` the sources as they were at that time.
    """

    shown: str | None = None
    instance: int = 0
    followups: tuple[str, ...] = ()
    sources_used: tuple[int, ...] = ()
    citations: tuple[Citation, ...] = ()


class AttemptBody(TextBody):
    """An answer that does not end the turn, with the reason: it was interrupted, or waits for the calls next to it."""

    shown: str | None = None
    instance: int = 0
    reason: str
    followups: tuple[str, ...] = ()
    sources_used: tuple[int, ...] = ()
    cut_reason: CutReason | None = None


class SummaryBody(TextBody):
    """The working summary of a turn, hidden from the person."""


class DeferralBody(TextBody):
    """Why the previous answer does not end the turn, and what to do now."""

    reason: str


class AnchorBody(TextBody):
    """An internal memory anchor: a short line that the model leaves for later turns.

    `tags` say what it notes: P a preference of the user, D a decision, S a stable fact, A something achieved, K a key
    artifact.
    """

    tags: tuple[str, ...] = ()
    path: str | None = None


class HideBody(Body):
    """Blocks with one of `refs` and a `seq` up to `through_seq` are shown as `replacement` from here on."""

    refs: tuple[str, ...]
    through_seq: int
    replacement: str


class CheckoutBody(Body):
    """What the turn copied into its editable workspace. `artifacts` are the copies, `sources` their refs, one for each.
    `removed` lists the files that a replacing checkout removed from the workspace."""

    mode: Literal["replace", "overlay"]
    sources: tuple[str, ...]
    artifacts: tuple[Artifact, ...]
    removed: tuple[Artifact, ...] = ()


class PlanHistoryBody(Body):
    """The newest snapshots of plans whose own blocks are no longer shown, including the current plan.

    The plan that changed last is last. A plan's own block after the summarized range takes precedence over this one.
    """

    plans: tuple[PlanSnapshot, ...]


class KeptText(BaseModel):
    """A text that outlives its block: an anchor, a signal, an event. `kind` is its block type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str
    kind: str
    text: str


class RangeSummaryBody(Body):
    """A summary of the blocks `first_seq` to `last_seq`. It keeps what later readers would need them for.

    `history` covers whole ended turns; `turn` covers the beginning of the turn that contains it. A later summary of the
    same scope includes the earlier one. `turn_ids` are those of the range that no earlier summary listed.
    `by` says whether a model or a rule wrote the text. Tokens are estimates of the whole request, before and after.
    """

    scope: Literal["history", "turn"]
    first_seq: int
    last_seq: int
    turn_ids: tuple[str, ...]
    text: str
    kept: tuple[KeptText, ...] = ()
    before_tokens: int
    after_tokens: int
    by: Literal["model", "rules"]


class SystemMessageBody(TextBody):
    """The runtime changed what the model sees. `cache_ttl_pruned`: turns that begin before `recent_from_seq` are shown
    as cards or rows, those before `intact_from_seq` without their bulky results."""

    kind: Literal["cache_ttl_pruned"]
    recent_from_seq: int
    intact_from_seq: int


class TitleBody(Body):
    """The conversation's title was set."""

    title: str


class FeedbackBody(TextBody):
    """A person's or program's rating of an earlier turn, shown to the model at the start of the next turn."""

    turn_id: str
    origin: Literal["user", "machine"]
    reaction: str | None


class ExitBody(Body):
    """The terminal block of a turn. Exactly one of `outcome` and `error` is set.

    `cut_reason` is set when the answer is incomplete: always with the outcome `cut`, sometimes with `capped`.
    """

    outcome: Outcome | None = None
    cut_reason: CutReason | None = None
    error: Problem | None = None
    rounds: int
    usage: TurnUsage
    elapsed_ms: int
