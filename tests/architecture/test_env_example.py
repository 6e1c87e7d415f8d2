"""`.env.example` lists every setting of every service, made from the settings' own descriptions."""

import os
from pathlib import Path

from chat_proc.settings import WorkerSettings
from everturn.settings import CommonSettings, render_env_example
from exec_supervisor.settings import BrokerSettings
from ingress.settings import IngressSettings, OperatorSettings

WORKER = (
    "worker; ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, OPENAI_API_KEY and OPENAI_BASE_URL are read by the providers' SDKs"
)
EXAMPLE = Path(__file__).resolve().parents[2] / ".env.example"


def test_the_example_file_lists_every_setting() -> None:
    text = render_env_example(
        [
            ("both services", CommonSettings),
            ("ingress", IngressSettings),
            ("commands of an operator; the serving process needs none of it", OperatorSettings),
            (WORKER, WorkerSettings),
            ("broker", BrokerSettings),
        ]
    )
    if os.environ.get("UPDATE_GOLDEN") == "1":
        EXAMPLE.write_text(text)

    assert EXAMPLE.read_text() == text, "rewrite it with UPDATE_GOLDEN=1 make test TESTS=tests/architecture"
