"""Settings of a worker, from the environment."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from everturn.settings import CommonSettings


class WorkerSettings(CommonSettings):
    """Everything that can be set about one worker process."""

    worker_slots: int = Field(
        default=4, ge=1, le=256, validation_alias="WORKER_SLOTS", description="Turns one worker runs at once."
    )
    lease_s: float = Field(
        default=15.0, ge=1, le=120, validation_alias="LEASE_S", description="Seconds a lease lasts unless renewed."
    )
    drain_timeout_s: float = Field(
        default=30.0, ge=10, validation_alias="DRAIN_TIMEOUT_S", description="Seconds from SIGTERM to exit."
    )
    pool_size: int = Field(
        default=8, ge=2, le=100, validation_alias="DATABASE_POOL_SIZE", description="Database connections."
    )

    model: str = Field(
        default="",
        validation_alias="EVERTURN_MODEL",
        description="anthropic:<name>, openai:<name> or offline; empty chooses by which key is set.",
    )
    offline_delay_ms: float = Field(
        default=5.0, ge=0, validation_alias="OFFLINE_DELAY_MS", description="Pause between pieces of the offline model."
    )

    max_iterations: int = Field(
        default=15, ge=1, le=200, validation_alias="AI_REACT_MAX_ITERATIONS", description="Rounds of a turn."
    )
    turn_wall_time_s: float = Field(
        default=1800.0, gt=0, validation_alias="TURN_WALL_TIME_S", description="Seconds a turn may take."
    )
    turn_tokens: int = Field(
        default=2_000_000, ge=1, validation_alias="TURN_TOKENS", description="Tokens a turn may use, input and output."
    )
    turn_cost_usd: float = Field(
        default=10.0, gt=0, validation_alias="TURN_COST_USD", description="US dollars a turn may cost."
    )
    max_output_tokens: int = Field(
        default=8192, ge=256, validation_alias="MAX_OUTPUT_TOKENS", description="Tokens of one model reply."
    )

    sandbox_python: Path | None = Field(
        default=None,
        validation_alias="SANDBOX_PYTHON",
        description="Python of the environment generated programs run in; empty offers no code tool.",
    )

    @property
    def model_environment(self) -> Mapping[str, str]:
        """The variables that decide about the model; the providers' own SDKs read their keys by themselves."""
        return {**os.environ, "EVERTURN_MODEL": self.model, "EVERTURN_MODE": self.mode}
