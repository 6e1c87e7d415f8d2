"""The alert rules in Prometheus' own program: each fault raises exactly its alerts until it is over, and what is normal
raises none."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

RULES = Path(__file__).resolve().parents[3] / "deploy" / "prometheus" / "everturn.rules.yml"
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
SAMPLES, LENGTH_S = 30, 60
"""Of each phase: before the fault, with it, and after it; half an hour each."""
BEFORE, DURING, AFTER = "29m", "59m", "89m"
LIMIT_S = 120
HEALTHY = {
    'up{job="everturn-ingress",instance="a"}': "1",
    'up{job="everturn-worker",instance="w"}': "1",
    'ingress_streams{instance="a"}': "5",
    'ingress_requests_total{route="/x",status="200"}': "0+100",
    'ingress_requests_total{route="/x",status="503"}': "0+1",
    'ingress_stream_lag_seconds_bucket{le="1.0"}': "0+100",
    'ingress_stream_lag_seconds_bucket{le="10.0"}': "0+100",
    'ingress_stream_lag_seconds_bucket{le="+Inf"}': "0+100",
    'ingress_part_ready{part="postgres",instance="a"}': "1",
    'ingress_part_ready{part="postgres",instance="b"}': "1",
    'ingress_part_ready{part="objects",instance="a"}': "1",
    'ingress_part_ready{part="antivirus",instance="a"}': "1",
    'ingress_part_ready{part="postgres_disk",instance="a"}': "1",
    'everturn_disk_full_total{part="objects"}': "2",
    "everturn_detached_runs_failed_total": "7",
    'everturn_worker_slots{instance="w"}': "4",
    'everturn_worker_slots{instance="a"}': "0",
    'everturn_queued_turns_oldest_seconds{lane="paid"}': "3",
    'everturn_turns_ended_total{outcome="answered"}': "0+10",
    'everturn_turns_ended_total{outcome="failed"}': "0",
    'everturn_turn_crashes_total{instance="w"}': "3",
    'everturn_turns_stalled_total{instance="w"}': "1",
    'everturn_loop_errors_total{loop="claims",instance="w"}': "2",
    'everturn_broker_failures_total{reason="start_failed"}': "4",
    'everturn_turn_first_token_seconds_bucket{le="2.5"}': "0+10",
    'everturn_turn_first_token_seconds_bucket{le="60.0"}': "0+10",
    'everturn_turn_first_token_seconds_bucket{le="+Inf"}': "0+10",
    'everturn_model_call_seconds_count{model="m",kind="decision"}': "0+10",
    'everturn_model_calls_failed_total{model="m",kind="decision"}': "0",
    'everturn_escape_battery_attempts{instance="w",state="succeeded"}': "0",
    'everturn_escape_battery_attempts{instance="w",state="unanswered"}': "0",
    'everturn_leases_lost_total{instance="w"}': "0",
    'everturn_sweeps_total{outcome="done"}': "0+10",
    'everturn_sweeps_total{outcome="failed"}': "0",
    'everturn_redis_memory_bytes{kind="used"}': "100",
    'everturn_redis_memory_bytes{kind="limit"}': "1000",
    "everturn_canary_success_timestamp_seconds": "0+60",
    'everturn_canary_turns_total{outcome="deaf"}': "0",
}
"""Series by what they begin with and how much each sample adds."""

WORKER_GONE: Mapping[str, str | None] = {name: None for name in HEALTHY if 'instance="w"' in name}
NORMAL: list[Mapping[str, str | None]] = [
    {},
    # Nobody asks anything.
    {
        name: "1000"
        for name in HEALTHY
        if name.startswith(("ingress_requests", "ingress_stream_lag", "everturn_turns_ended"))
    }
    | {name: "500" for name in HEALTHY if name.startswith(("everturn_turn_first", "everturn_model_call"))},
    # A worker is replaced by another one.
    WORKER_GONE | {name.replace('"w"', '"x"'): HEALTHY[name] for name in WORKER_GONE},
    # All counters of a process that was restarted begin again.
    {'everturn_turn_crashes_total{instance="w"}': "0", 'everturn_turns_stalled_total{instance="w"}': "0"},
    {'everturn_turns_ended_total{outcome="failed"}': "0+1"},
    {'everturn_model_calls_failed_total{model="m",kind="decision"}': "0+1"},
    {'ingress_requests_total{route="/x",status="503"}': "0+4"},
    {'everturn_queued_turns_oldest_seconds{lane="paid"}': "60"},
    {'everturn_redis_memory_bytes{kind="limit"}': "0"},
    {'everturn_broker_failures_total{reason="busy"}': "0+1"},
]
"""What can change in an installation that works."""

FAULTS: list[tuple[Mapping[str, str | None], set[str]]] = [
    ({'ingress_streams{instance="a"}': None}, {"EverturnNoIngress"}),
    ({'up{job="everturn-worker",instance="w"}': "0"}, {"EverturnProcessDown"}),
    ({'ingress_part_ready{part="objects",instance="a"}': "0"}, {"EverturnPartUnavailable"}),
    ({'ingress_part_ready{part="postgres",instance="b"}': "0"}, {"EverturnPartUnavailable"}),
    ({'ingress_part_ready{part="postgres_disk",instance="a"}': "0"}, {"EverturnPartUnavailable"}),
    ({'ingress_part_ready{part="antivirus",instance="a"}': "0"}, {"EverturnFilesRefused"}),
    ({'everturn_disk_full_total{part="objects"}': "0+1"}, {"EverturnDiskFull"}),
    ({'ingress_requests_total{route="/x",status="503"}': "0+10"}, {"EverturnServerErrors"}),
    ({'everturn_turn_crashes_total{instance="w"}': "0+1"}, {"EverturnTurnsCrash"}),
    ({'everturn_turns_stalled_total{instance="w"}': "0+1"}, {"EverturnTurnStalls"}),
    ({'everturn_loop_errors_total{loop="claims",instance="w"}': "0+1"}, {"EverturnLoopFails"}),
    ({'everturn_broker_failures_total{reason="image_missing"}': "0+1"}, {"EverturnProgramsFail"}),
    ({"everturn_detached_runs_failed_total": "0+2"}, {"EverturnRunsUnattended"}),
    ({'everturn_escape_battery_attempts{instance="w",state="succeeded"}': "1"}, {"EverturnSandboxEscape"}),
    ({'everturn_escape_battery_attempts{instance="w",state="unanswered"}': "1"}, {"EverturnSelfTestIncomplete"}),
    ({'everturn_worker_slots{instance="w"}': None}, {"EverturnNoWorker"}),
    ({'everturn_queued_turns_oldest_seconds{lane="paid"}': "300"}, {"EverturnQueueWaits"}),
    ({'everturn_turns_ended_total{outcome="failed"}': "0+5"}, {"EverturnTurnsFail"}),
    ({'everturn_model_calls_failed_total{model="m",kind="decision"}': "0+5"}, {"EverturnModelFails"}),
    ({'everturn_turn_first_token_seconds_bucket{le="2.5"}': "0"}, {"EverturnFirstTokenSlow"}),
    ({'everturn_leases_lost_total{instance="w"}': "0+1"}, {"EverturnLeasesLost"}),
    ({'everturn_sweeps_total{outcome="failed"}': "0+20"}, {"EverturnSweepsFail"}),
    ({'everturn_redis_memory_bytes{kind="used"}': "850"}, {"EverturnRedisNearlyFull"}),
    ({'ingress_stream_lag_seconds_bucket{le="1.0"}': "0"}, {"EverturnStreamsLag"}),
    ({"everturn_canary_success_timestamp_seconds": "0"}, {"EverturnCanaryFails"}),
    ({'everturn_canary_turns_total{outcome="deaf"}': "0+1"}, {"EverturnListenersDeaf"}),
]


def find_promtool() -> str:
    """The program. Without it the test is skipped, and fails in CI."""
    found = shutil.which("promtool")
    if found is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("There is no promtool here: apt-get install prometheus.")
    return found


def build_line(values: str, phase: int) -> str:
    """A phase of a series, in promtool's notation; where its line changes, a counter jumps or starts again."""
    first, _, step = values.partition("+")
    begin = int(first) + int(step or 0) * SAMPLES * phase
    return f"{begin}+{step or 0}x{SAMPLES - 1}"


def build_series(name: str, fault: Mapping[str, str | None]) -> dict[str, str]:
    phases = (HEALTHY.get(name), fault.get(name, HEALTHY.get(name)), HEALTHY.get(name))
    lines = (f"_x{SAMPLES}" if each is None else build_line(each, phase) for phase, each in enumerate(phases))
    return {"series": name, "values": " ".join(lines)}


def build_case(fault: Mapping[str, str | None], expected: set[str]) -> dict[str, Any]:
    """A promtool test of which alerts fire, whatever labels and texts they have."""
    firing = 'group by (alertname) (ALERTS{alertstate="firing"})'
    checks = [(BEFORE, firing, set[str]()), (DURING, firing, expected), (AFTER, firing, set[str]())]
    # A fault that is over within `for` raises nothing.
    waits = {alert: int(ALERTS[alert]["for"].removesuffix("m")) for alert in expected if "for" in ALERTS[alert]}
    checks += [
        (f"{29 + minutes}m", firing.replace("{", f'{{alertname="{alert}",'), set[str]())
        for alert, minutes in waits.items()
    ]
    return {
        "name": f"{sorted(fault)}",
        "interval": f"{LENGTH_S}s",
        "input_series": [build_series(name, fault) for name in HEALTHY | dict(fault)],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": time,
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)],
            }
            for time, expr, alerts in checks
        ],
    }


def test_each_fault_raises_its_alert_and_no_other_until_it_is_over(tmp_path: Path) -> None:
    cases = [build_case(fault, expected) for fault, expected in [*FAULTS, *((change, set[str]()) for change in NORMAL)]]
    file = tmp_path / "cases.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "60s", "tests": cases}))

    done = subprocess.run(
        [find_promtool(), "test", "rules", str(file)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )

    assert {alert for _, expected in FAULTS for alert in expected} == set(ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr
