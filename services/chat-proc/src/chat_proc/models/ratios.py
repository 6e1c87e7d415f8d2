"""What each model's tokens have taught: shared by whoever estimates, updated by whoever calls models."""

from chat_proc.models.estimate import count_chars, count_media_tokens
from everturn.model.llm.prompts import ModelRequest
from everturn.model.llm.tokens import CharsPerToken
from everturn.ports.language_model import ModelUsage


class LearnedRatios:
    """One ratio for each model name. Only `learn` changes them."""

    def __init__(self) -> None:
        self._by_model: dict[str, CharsPerToken] = {}

    def of(self, model: str) -> CharsPerToken:
        """The ratio learnt so far; the usual one for a model that never answered."""
        return self._by_model.get(model, CharsPerToken())

    def learn(self, model: str, request: ModelRequest, usage: ModelUsage) -> None:
        """After a call that the provider counted; what we estimated ourselves teaches nothing."""
        if not usage.estimated:
            text_tokens = usage.input_tokens - count_media_tokens(request)
            self._by_model[model] = self.of(model).learned(count_chars(request), text_tokens)
