"""Models of OpenAI that Azure serves, over the official SDK's own client. A model is named after its deployment."""

from openai import AsyncAzureOpenAI, DefaultAsyncHttpxClient

from chat_proc.models.bounded_http import build_event_hooks
from chat_proc.models.cards import ModelCards
from chat_proc.models.openai import OpenAIModel
from chat_proc.models.roles import ModelChoice


def build_model(choice: ModelChoice, cards: ModelCards) -> OpenAIModel:
    """The chosen deployment; key, address and version of the API come from the SDK's own environment variables."""
    http = DefaultAsyncHttpxClient(follow_redirects=False, event_hooks=build_event_hooks())
    client = AsyncAzureOpenAI(max_retries=0, http_client=http)
    card = cards.find_card(choice, reads_media=False)
    traits = card.build_traits(
        choice.name, provider="azure.ai.openai", server_address=client.base_url.host, endpoint=choice.provider
    )
    return OpenAIModel(client, traits)
