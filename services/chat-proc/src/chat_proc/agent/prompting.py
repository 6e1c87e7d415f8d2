"""What the model is sent in a round: the rendered timeline, and ANNOUNCE with the budget as it stands."""

from chat_proc.agent.drafting import RoundPlace
from chat_proc.agent.limits import TurnLimits, base_rounds
from chat_proc.agent.open_turn import OpenTurn
from chat_proc.timeline.announce import Budget, build_announce, build_announce_state
from chat_proc.timeline.files import wanted_media
from chat_proc.timeline.render import PromptRenderer
from everturn.model.llm.prompts import ModelRequest
from everturn.ports.language_model import ModelTraits


class PromptBuilder:
    """Shared by all turns of a worker. `code` says how programs run here, or why they can't."""

    def __init__(
        self, *, system_prompt: str, closing_prompt: str, traits: ModelTraits, limits: TurnLimits, code: str
    ) -> None:
        self.system_prompt = system_prompt
        self.closing_prompt = closing_prompt
        self.traits = traits
        self.limits = limits
        self.code = code

    def open(self, turn: OpenTurn) -> "TurnPrompts":
        return TurnPrompts(self, turn)


class TurnPrompts:
    """The requests of one turn; a block is rendered once."""

    def __init__(self, shared: PromptBuilder, turn: OpenTurn) -> None:
        self._shared = shared
        self._turn = turn
        self._renderer = PromptRenderer(system_prompt=shared.system_prompt, traits=shared.traits)

    async def build(self, place: RoundPlace) -> ModelRequest:
        """The request of an ordinary round."""
        limits = self._shared.limits
        cap = limits.finalize_output_tokens if place.finalize else limits.max_output_tokens
        return await self._request(self._announce(place), max_tokens=min(cap, limits.max_output_tokens))

    async def build_closing(self, place: RoundPlace, cap: str) -> ModelRequest:
        """The request of the closing call; `cap` says in words what was reached."""
        announce = self._announce(place) + "\n" + self._shared.closing_prompt.replace("{cap}", cap)
        return await self._request(announce, max_tokens=self._shared.limits.max_output_tokens)

    async def _request(self, announce: str, *, max_tokens: int) -> ModelRequest:
        turn = self._turn
        await turn.load_media(wanted_media(turn.blocks))
        messages = self._renderer.render(turn.blocks, announce, turn.media)
        return ModelRequest(messages, max_tokens)

    def _announce(self, place: RoundPlace) -> str:
        turn, limits = self._turn, self._shared.limits
        budget = Budget(
            round=place.round,
            round_limit=place.limit,
            bonus_rounds=0 if place.finalize else max(0, place.limit - base_rounds(limits, turn.turn_blocks)),
            finalize=place.finalize,
            elapsed_s=turn.spent.elapsed_s,
            wall_time_s=limits.wall_time_s,
            tokens=turn.spent.usage.input_tokens + turn.spent.usage.output_tokens,
            token_limit=limits.tokens,
            cost_usd=turn.spent.usage.cost_usd,
            cost_limit_usd=limits.cost_usd,
        )
        state = build_announce_state(turn.blocks, turn.turn_id, budget=budget, code=self._shared.code, now=place.now)
        return build_announce(state)
