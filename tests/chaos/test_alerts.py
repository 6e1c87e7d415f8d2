"""Faults of a running platform, seen by a real Prometheus with the alert rules: alerts fire, and end with the fault.

The rules are the operator's, with shorter times. `make test SLOW=1 TESTS=tests/chaos/test_alerts.py` plays it, in about
ten minutes. What needs a bug or an escape, and the broker, is left to tests/integration/deploy/test_alert_rules.py.
"""

import asyncio
import re
import shutil
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import pytest
import yaml
from redis import Redis

from everturn_local.ports import LOOPBACK, load_free_port
from everturn_local.servers.clamd import choose_clamd
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(2400)]

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "everturn.rules.yml"
FIRES_WITHIN_S, ENDS_WITHIN_S, POLL_S = 90.0, 150.0, 0.5
SEND_EVERY_S = 0.5
FROZEN_S = 25.0
"""Longer than a lease, and than a client waits for an event."""
SHORTER = {"EverturnQueueWaits": ("> 120", "> 5"), "EverturnFirstTokenSlow": ("> 30", "> 3")}
ANSWER = """'''<channel:action>{"action": "complete", "notes": "", "tool_call": null, "final_answer": "FINAL",
"suggested_followups": null}</channel:action>'''"""
SCRIPTS = f"""
[[scripts]]
when = "fails"
rounds = [{{reply = "no", then = "fail_for_good"}}]
[[scripts]]
when = "late"
rounds = [{{reply = {ANSWER.replace("FINAL", "Late.")}, pause_ms = 6000, chunk_chars = 4000}}]
[[scripts]]
when = "long"
rounds = [{{reply = {ANSWER.replace("FINAL", "word " * 60)}, pause_ms = 400, chunk_chars = 8}}]
[[scripts]]
when = ""
rounds = [{{reply = {ANSWER.replace("FINAL", "Yes.")}}}]
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """`raises` are alerts, with the part for those of parts; while it lasts, `message` is sent again and again."""

    name: str
    raises: set[str]
    begin: Callable[[], Awaitable[object]]
    end: Callable[[], Awaitable[object]]
    message: str = ""


class Watched:
    """A platform with one ingress and two workers, and the alerts that fire."""

    def __init__(self, platform: Platform, prometheus: str) -> None:
        self.platform = platform
        self._http = httpx2.AsyncClient(base_url=platform.urls[0], timeout=20)
        self._prometheus = prometheus

    async def send(self, text: str) -> str:
        """The id of the conversation; empty if the message was not accepted."""
        try:
            answer = await self._http.post("/conversations/default/default/new/messages", json={"text": text})
        except httpx2.HTTPError:
            return ""
        return answer.json()["conversation_id"] if answer.status_code == 202 else ""

    async def send_forever(self, text: str) -> None:
        while True:
            await asyncio.gather(self.send(text), self.send(text))
            await asyncio.sleep(SEND_EVERY_S)

    async def load_firing(self) -> set[str]:
        async with httpx2.AsyncClient(base_url=self._prometheus, timeout=20) as http:
            alerts = (await http.get("/api/v1/alerts")).json()["data"]["alerts"]
        labels = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
        return {":".join(filter(None, (each["alertname"], each.get("part")))) for each in labels}

    async def wait_for(self, reached: Callable[[set[str]], bool], limit_s: float) -> set[str]:
        """What fires when that is reached, or at the end of the time."""
        give_up = time.monotonic() + limit_s
        while True:
            firing = await self.load_firing()
            if reached(firing) or time.monotonic() > give_up:
                return firing
            await asyncio.sleep(POLL_S)

    async def stop_workers(self) -> None:
        for name in ("worker-1", "worker-2"):
            await self.platform.stop_part(name, limit_s=2)
        await self.send("Hi")

    async def start_workers(self) -> None:
        for name in ("worker-1", "worker-2"):
            await self.platform.restart(name)

    async def freeze_workers(self) -> None:
        for _ in range(8):
            await self.send("long")
        await asyncio.sleep(4)
        for pause in (signal.SIGSTOP, signal.SIGCONT):
            for name in ("worker-1", "worker-2"):
                self.platform.kill(name, pause)
            await asyncio.sleep(FROZEN_S if pause is signal.SIGSTOP else 0)

    async def freeze_ingress(self) -> None:
        path = f"/conversations/default/default/{await self.send('long')}/events"
        async with self._http.stream("GET", path) as events:
            lines = events.aiter_lines()
            while "chat.delta" not in await anext(lines):
                pass
            for pause in (signal.SIGSTOP, signal.SIGCONT):
                self.platform.kill("ingress-1", pause)
                await asyncio.sleep(10 if pause is signal.SIGSTOP else 3)

    async def set_redis_limit(self, share: float) -> None:
        with Redis.from_url(self.platform.redis.url) as redis:
            used = redis.info("memory")["used_memory"]  # type: ignore[index]
            redis.config_set("maxmemory", int(used / share))

    async def close(self) -> None:
        await self._http.aclose()


def build_faults(watched: Watched, objects: Path) -> list[Fault]:
    platform, hidden = watched.platform, objects.with_name("hidden")
    stop, start = partial(platform.stop_part, limit_s=5), platform.restart
    away = {"EverturnSweepsFail", "EverturnServerErrors"}

    def hide_objects() -> None:
        objects.rename(hidden)
        objects.write_text("")

    def show_objects() -> None:
        objects.unlink()
        hidden.rename(objects)

    async def nothing() -> None: ...

    return [
        Fault("a worker", {"EverturnProcessDown"}, partial(stop, "worker-2"), partial(start, "worker-2")),
        Fault(
            "all workers",
            {"EverturnNoWorker", "EverturnProcessDown", "EverturnQueueWaits"},
            watched.stop_workers,
            watched.start_workers,
        ),
        Fault(
            "the ingress",
            {"EverturnNoIngress", "EverturnProcessDown"},
            partial(stop, "ingress-1"),
            partial(start, "ingress-1"),
        ),
        Fault(
            "Redis",
            {"EverturnPartUnavailable:redis", *away},
            partial(stop, "redis"),
            partial(start, "redis"),
            message="Hi",
        ),
        Fault(
            "Postgres",
            {"EverturnPartUnavailable:postgres", *away},
            partial(stop, "postgres"),
            partial(start, "postgres"),
            message="Hi",
        ),
        Fault(
            "the objects",
            {"EverturnPartUnavailable:objects"},
            *(partial(asyncio.to_thread, each) for each in (hide_objects, show_objects)),
        ),
        Fault("clamd", {"EverturnFilesRefused:antivirus"}, partial(stop, "clamd"), partial(start, "clamd")),
        Fault(
            "room in Redis",
            {"EverturnRedisNearlyFull"},
            partial(watched.set_redis_limit, 0.85),
            partial(watched.set_redis_limit, 0.01),
        ),
        Fault("the model", {"EverturnModelFails", "EverturnTurnsFail"}, nothing, nothing, message="fails"),
        Fault("a fast model", {"EverturnFirstTokenSlow"}, nothing, nothing, message="late"),
        Fault("time for workers", {"EverturnLeasesLost"}, watched.freeze_workers, nothing),
        Fault("time for the ingress", {"EverturnStreamsLag"}, watched.freeze_ingress, nothing),
    ]


async def test_alerts_fire_for_faults_and_end_with_them(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None or choose_clamd({}).program is None:
        pytest.skip("There is no Prometheus or no clamd here: apt-get install prometheus clamav-daemon.")
    wrong: list[str] = []
    async with open_watched(tmp_path) as watched:
        await watched.send("Hi")
        for fault in build_faults(watched, watched.platform.home.objects):
            await fault.begin()
            sending = asyncio.create_task(watched.send_forever(fault.message)) if fault.message else None
            firing = await watched.wait_for(fault.raises.issubset, FIRES_WITHIN_S)
            if sending is not None:
                sending.cancel()
                await asyncio.wait([sending])
            await fault.end()
            left = await watched.wait_for(lambda firing: not firing, ENDS_WITHIN_S)
            wrong += [f"{fault.name}: {alert} did not fire" for alert in fault.raises - firing]
            wrong += [f"{fault.name}: {alert} did not end" for alert in left]

    assert not wrong


@asynccontextmanager
async def open_watched(folder: Path) -> AsyncGenerator[Watched]:
    (folder / "scripts.toml").write_text(SCRIPTS)
    (folder / "rules.yml").write_text(build_short_rules())
    metrics, port = load_free_port(), load_free_port()
    env = {
        "EVERTURN_MODEL": f"scripted:{folder / 'scripts.toml'}",
        "METRICS_LISTEN": f"{LOOPBACK}:{metrics}",
        "EXECUTION_MODE": "off",
        "EMBEDDER": "hashed",
    }
    async with AsyncExitStack() as stack:
        platform = Platform(folder / "home", env=env, clamd=choose_clamd({}), auto_restart=False)
        await stack.enter_async_context(platform)
        targets = {
            "everturn-ingress": [platform.urls[0].removeprefix("http://")],
            "everturn-worker": [f"{LOOPBACK}:{metrics}", f"{LOOPBACK}:{metrics + 1}"],
        }
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": addresses}]} for job, addresses in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
        log = stack.enter_context((folder / "prometheus.log").open("w"))
        process = await asyncio.create_subprocess_exec(*command, f"--web.listen-address={LOOPBACK}:{port}", stderr=log)
        stack.push_async_callback(process.wait)
        stack.callback(process.terminate)
        watched = Watched(platform, f"http://{LOOPBACK}:{port}")
        stack.push_async_callback(watched.close)
        await wait_until_it_serves(f"http://{LOOPBACK}:{port}/-/ready")
        yield watched


async def wait_until_it_serves(url: str) -> None:
    async with httpx2.AsyncClient(timeout=20) as http, asyncio.timeout(60):
        while True:
            try:
                if (await http.get(url)).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            await asyncio.sleep(POLL_S)


def build_short_rules() -> str:
    document = yaml.safe_load(RULES.read_text())
    for rule in (rule for group in document["groups"] for rule in group["rules"]):
        rule["expr"] = re.sub(r"\[\d+m\]", "[30s]", rule["expr"]).replace(*SHORTER.get(rule["alert"], ("", "")))
        if "for" in rule:
            rule["for"] = "3s"
    return yaml.safe_dump(document)
