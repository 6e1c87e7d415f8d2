"""What holds at the present moment of a conversation, folded block by block: plans, signals, feedback, media."""

from collections.abc import Iterable

from chat_proc.timeline.files import AttachedMedia, block_media
from chat_proc.timeline.plans import PlanFold, open_plans
from everturn.model.block_bodies import EventBody, FeedbackBody, SignalBody
from everturn.model.blocks import Block
from everturn.model.ids import TurnId
from everturn.model.plans import PlanSnapshot


class Present:
    """Takes one block after another; what it costs to ask does not grow with the blocks."""

    def __init__(self) -> None:
        self.turn_id = TurnId("")
        self.events: list[Block] = []
        """Signals and outside events of the newest turn."""
        self.feedback: list[FeedbackBody] = []
        """Said in the newest turn about earlier ones."""
        self._plans = PlanFold()
        self._wanted: dict[str, AttachedMedia] = {}

    def extend(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._take(block)

    @property
    def open_plans(self) -> tuple[PlanSnapshot, ...]:
        """The last open plans to show: the current one, and those that the newest turn has changed."""
        return open_plans(self._plans.latest(), self.turn_id)

    @property
    def wanted_media(self) -> tuple[AttachedMedia, ...]:
        """The files whose bytes a request needs: the images and PDFs of the newest turn, each content once."""
        return tuple(self._wanted.values())

    def _take(self, block: Block) -> None:
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
                """Says nothing of the present."""
