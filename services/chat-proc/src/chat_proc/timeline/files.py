"""Files and plans of a conversation, folded from its blocks, and which files go to the model as images or documents."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, ValidationError

from everturn.core.ids import TurnId
from everturn.files.model import Artifact
from everturn.timeline.blocks import Block
from everturn.timeline.bodies import (
    AttachmentBody,
    CheckoutBody,
    EventBody,
    FeedbackBody,
    PlanBody,
    PlanHistoryBody,
    SignalBody,
    ToolResultBody,
)
from everturn.timeline.plans import PlanSnapshot, PlanStatus

IMAGE_MIMES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that both providers accept."""
PDF_MIME = "application/pdf"
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_PDF_BYTES = 10 * 1024 * 1024
"""The largest images and PDFs that are sent to a model."""

_TEXT_APPLICATION = frozenset({"application/json", "application/xml", "application/yaml", "application/csv"})


class AttachedMedia(BaseModel):
    """An image or PDF that a tool result wants shown to the model; lives in the result's `data["attached"]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str
    mime: str
    sha256: str
    name: str
    size: int
    object_key: str
    """Where its bytes are; the block that brought it into the conversation may not be loaded any more."""


class _Attaching(BaseModel):
    """The part of a tool result's data that is read here."""

    attached: tuple[AttachedMedia, ...] = ()


def is_text(mime: str) -> bool:
    """Whether a file of this type reads as text."""
    return mime.startswith("text/") or mime in _TEXT_APPLICATION or mime == "image/svg+xml"


def is_media(mime: str) -> bool:
    """Whether a model may be able to read such a file itself."""
    return mime in IMAGE_MIMES or mime == PDF_MIME


def max_media_bytes(mime: str) -> int:
    """The size limit for sending a file of this type, which `is_media`, to a model."""
    return MAX_PDF_BYTES if mime == PDF_MIME else MAX_IMAGE_BYTES


def fold_artifacts(blocks: Iterable[Block]) -> dict[str, Artifact]:
    """All files by ref, in order of first appearance; a rewritten file has its last content."""
    return {artifact.ref: artifact for block in blocks for artifact in block_artifacts(block)}


def block_artifacts(block: Block) -> tuple[Artifact, ...]:
    """The files that a block brings into the conversation."""
    match block.body:
        case AttachmentBody(artifact=artifact):
            return (artifact,)
        case SignalBody(attachments=attachments) | EventBody(attachments=attachments):
            return attachments
        case ToolResultBody(artifacts=artifacts) | CheckoutBody(artifacts=artifacts):
            return artifacts
        case _:
            return ()


def block_media(block: Block) -> tuple[AttachedMedia, ...]:
    """The images and PDFs to show with a block: attached by a person, or shown by a tool result."""
    match block.body:
        case AttachmentBody() | SignalBody() | EventBody():
            return tuple(describe_media(artifact) for artifact in block_artifacts(block) if is_media(artifact.mime))
        case ToolResultBody(data=dict() as data) if "attached" in data:
            try:
                return _Attaching.model_validate({"attached": data["attached"]}).attached
            except ValidationError:
                return ()  # a tool's data with the same key but another meaning
        case _:
            return ()


def describe_media(artifact: Artifact) -> AttachedMedia:
    """How a tool result describes a file that it shows."""
    return AttachedMedia(
        ref=artifact.ref,
        mime=artifact.mime,
        sha256=artifact.sha256,
        name=artifact.filename,
        size=artifact.size,
        object_key=artifact.object_key,
    )


# The plans of a conversation, folded from its blocks.

SHOWN_PLANS = 4


class PlanFold:
    """Folds one block after another. The result is the same with or without the blocks that the last history
    replaces."""

    def __init__(self) -> None:
        self._history: tuple[PlanSnapshot, ...] = ()
        self._changed: dict[str, PlanSnapshot] = {}

    def take(self, block: Block) -> None:
        match block.body:
            case PlanBody(plan=plan):
                self._changed.pop(plan.plan_id, None)
                self._changed[plan.plan_id] = plan
            case PlanHistoryBody(plans=plans):
                self._history = plans
            case _:
                """Not about plans."""

    def latest(self) -> tuple[PlanSnapshot, ...]:
        """The newest snapshot of every plan; the one that changed last is last."""
        latest: dict[str, PlanSnapshot] = {}
        for plan in (*self._history, *self._changed.values()):
            latest.pop(plan.plan_id, None)
            latest[plan.plan_id] = plan
        return tuple(latest.values())


def latest_plans(blocks: Iterable[Block]) -> tuple[PlanSnapshot, ...]:
    """The newest snapshot of every plan; the one that changed last is last."""
    fold = PlanFold()
    for block in blocks:
        fold.take(block)
    return fold.latest()


def current_plan(blocks: Iterable[Block]) -> PlanSnapshot | None:
    """The open plan that step marks apply to, if there is one."""
    return next((plan for plan in latest_plans(blocks) if plan.current and plan.status is PlanStatus.OPEN), None)


def open_plans(latest: Iterable[PlanSnapshot], turn_id: TurnId) -> tuple[PlanSnapshot, ...]:
    """The last open plans to show in a turn: the current one, and those this turn has changed."""
    plans = (plan for plan in latest if plan.status is PlanStatus.OPEN)
    return tuple(plan for plan in plans if plan.current or plan.last_turn_id == turn_id)[-SHOWN_PLANS:]


# The current state of a conversation, folded block by block: plans, signals, feedback, media.


class Present:
    """Folds one block after another; the cost of a read does not grow with the blocks."""

    def __init__(self) -> None:
        self.turn_id = TurnId("")
        self.events: list[Block] = []
        """Signals and external events of the newest turn."""
        self.feedback: list[FeedbackBody] = []
        """Feedback in the newest turn about earlier ones."""
        self._plans = PlanFold()
        self._wanted: dict[str, AttachedMedia] = {}

    def extend(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._add(block)

    @property
    def open_plans(self) -> tuple[PlanSnapshot, ...]:
        """The last open plans to show: the current one, and those that the newest turn has changed."""
        return open_plans(self._plans.latest(), self.turn_id)

    @property
    def wanted_media(self) -> tuple[AttachedMedia, ...]:
        """The files whose bytes a request needs: the images and PDFs of the newest turn, each content once."""
        return tuple(self._wanted.values())

    def _add(self, block: Block) -> None:
        if block.turn_id != self.turn_id:
            self.turn_id = block.turn_id
            self.events, self.feedback, self._wanted = [], [], {}
        self._wanted |= {media.sha256: media for media in block_media(block)}
        self._plans.take(block)
        match block.body:
            case SignalBody() | EventBody():
                self.events.append(block)
            case FeedbackBody():
                self.feedback.append(block.body)
            case _:
                """Does not change the current state."""
