"""Ids in paths: one that is not ours by its form is as absent as a foreign one."""

from typing import Annotated

from fastapi import Depends, Path

from everturn.model.ids import ArtifactId, ConversationId, SignalId, TurnId, is_id
from ingress.errors import absent

_UUID = "01890a5d-ac96-774b-bcce-b302099a8057"


def load_conversation_id(
    conversation_id: Annotated[str, Path(description="The conversation's id.", examples=[f"conv_{_UUID}"])],
) -> ConversationId:
    return ConversationId(_checked(conversation_id, "conv"))


def load_turn_id(
    turn_id: Annotated[str, Path(description="The turn's id.", examples=[f"turn_{_UUID}"])],
) -> TurnId:
    return TurnId(_checked(turn_id, "turn"))


def load_signal_id(
    signal_id: Annotated[str, Path(description="The signal's id.", examples=[f"sig_{_UUID}"])],
) -> SignalId:
    return SignalId(_checked(signal_id, "sig"))


def load_artifact_id(
    artifact_id: Annotated[str, Path(description="The artifact's id.", examples=[f"art_{_UUID}"])],
) -> ArtifactId:
    return ArtifactId(_checked(artifact_id, "art"))


def _checked(text: str, prefix: str) -> str:
    if not is_id(text, prefix):
        raise absent()
    return text


ConversationPath = Annotated[ConversationId, Depends(load_conversation_id)]
TurnPath = Annotated[TurnId, Depends(load_turn_id)]
SignalPath = Annotated[SignalId, Depends(load_signal_id)]
ArtifactPath = Annotated[ArtifactId, Depends(load_artifact_id)]
