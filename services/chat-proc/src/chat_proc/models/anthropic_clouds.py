"""Models of Anthropic that Amazon Bedrock and Google Vertex AI serve, over the official SDK's own clients.

Requests and replies are those of Anthropic's own server; only addresses, credentials and, on Bedrock, the frames of a
stream differ. The addresses are in `anthropic.py`.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import boto3
import google.auth
from anthropic import DefaultAsyncHttpxClient
from anthropic.lib.bedrock import AsyncAnthropicBedrock
from anthropic.lib.bedrock._stream_decoder import get_response_stream_shape
from anthropic.lib.vertex import AsyncAnthropicVertex
from botocore.eventstream import ParserError
from botocore.exceptions import BotoCoreError, ClientError
from google.auth.exceptions import GoogleAuthError

from chat_proc.models.anthropic import AnthropicModel
from chat_proc.models.bounded_http import build_event_hooks
from chat_proc.models.cards import ModelCards
from chat_proc.models.replies import read_text
from chat_proc.models.roles import ModelChoice
from everturn.models.port import ModelFailed, ModelPiece, ModelRequest

_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_CREDENTIAL_ERRORS = (BotoCoreError, ClientError, GoogleAuthError)
"""What the clients raise if credentials expire and can't be renewed, besides the errors of an HTTP client, and a
RuntimeError of Anthropic's SDK that says so."""


def build_bedrock_model(choice: ModelChoice, cards: ModelCards) -> "CloudModel":
    """The chosen model on Bedrock; region, credentials and address come from the SDK's own environment variables."""
    # The SDK would read this description of the stream at the first event, which takes 75 ms on the event loop.
    get_response_stream_shape()
    # The hooks set this header, too, but after the request has been signed with all its headers.
    http = DefaultAsyncHttpxClient(
        headers={"Accept-Encoding": "identity"}, follow_redirects=False, event_hooks=build_event_hooks()
    )
    return _build_model(choice, cards, AsyncAnthropicBedrock(max_retries=0, http_client=http), "aws.bedrock")


def build_vertex_model(choice: ModelChoice, cards: ModelCards) -> "CloudModel":
    """The chosen model on Vertex AI; region, project and credentials come from the SDK's own environment variables."""
    http = DefaultAsyncHttpxClient(follow_redirects=False, event_hooks=build_event_hooks())
    return _build_model(choice, cards, AsyncAnthropicVertex(max_retries=0, http_client=http), "gcp.vertex_ai")


def _build_model(
    choice: ModelChoice, cards: ModelCards, client: AsyncAnthropicBedrock | AsyncAnthropicVertex, provider: str
) -> "CloudModel":
    card = cards.find_card(choice, reads_media=True)
    traits = card.build_traits(
        choice.name, provider=provider, server_address=client.base_url.host, endpoint=choice.provider
    )
    return CloudModel(client, traits, adaptive_thinking=card.adaptive_thinking)


def has_aws_credentials() -> bool:
    """Whether variables, a profile or the role of this machine give credentials. Asks the metadata service for 1 s."""
    try:
        return boto3.Session().get_credentials() is not None
    except (BotoCoreError, ClientError):
        return False


def has_google_credentials() -> bool:
    """Whether a file or the role of this machine gives credentials. Asks the metadata service for some seconds."""
    try:
        google.auth.default(scopes=[_GOOGLE_SCOPE])  # pyright: ignore[reportUnknownMemberType] - typed in part
    except GoogleAuthError:
        return False
    return True


class CloudModel(AnthropicModel):
    """One model of a cloud's client, which also raises errors of the cloud's own libraries."""

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Stream one reply; closing the generator closes the HTTP response."""
        try:
            async with aclosing(super().generate(request)) as pieces:
                async for piece in pieces:
                    yield piece
        except ParserError as error:
            raise ModelFailed(
                "The model's server sent data that can't be read.",
                kind="invalid_reply",
                retryable=True,
                provider_text=_describe(error),
            ) from error
        except (*_CREDENTIAL_ERRORS, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "credentials" not in str(error):
                raise
            raise ModelFailed(
                "The credentials for the provider can't be read or renewed.",
                kind="unauthorized",
                retryable=True,
                likely_permanent=True,
                provider_text=_describe(error),
            ) from error


def _describe(error: Exception) -> str:
    return read_text(f"{type(error).__name__}: {error}")
