"""The time that each way to run the platform gives a worker to stop."""

from pathlib import Path

import pytest
import yaml

from chat_proc.bundles.versions import STOP_S
from chat_proc.settings import WorkerSettings
from everturn_local.compose.program import FILE
from everturn_local.compose.unhealthy import WORKERS
from everturn_local.supervision.service import STOP_LIMIT_S

ROOT = Path(__file__).resolve().parents[3]
DRAIN_S = WorkerSettings.model_fields["drain_timeout_s"].default
LIMIT_S = int(DRAIN_S + STOP_S)
"""Longer than a worker needs to hand over its turns, and to store the tokens that calls of tools have requested."""


def test_workers_have_the_time_to_close_their_bundles():
    [pod] = [
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all((ROOT / "deploy/k8s/base/worker.yaml").read_text())
        if each["kind"] == "Deployment"
    ]

    assert yaml.safe_load(FILE.read_text())["services"][WORKERS]["stop_grace_period"] == f"{LIMIT_S}s"
    assert pod["terminationGracePeriodSeconds"] == LIMIT_S
    assert STOP_LIMIT_S == LIMIT_S


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("operate.md", f"`DRAIN_TIMEOUT_S` ({DRAIN_S}) plus {STOP_S:.0f} seconds"),
        ("how-to/run-with-compose.md", f"a worker {LIMIT_S} s to stop"),
        ("how-to/run-on-kubernetes.md", f"{LIMIT_S} s for workers"),
    ],
)
def test_the_documents_tell_operators_this_time(page: str, text: str):
    assert text in (ROOT / "docs" / page).read_text()
