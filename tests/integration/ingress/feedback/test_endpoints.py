"""Rating turns, and the totals of ratings."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import httpx2
import jwt
import pytest

BASE = "/conversations/default/default"
SECRET = "a secret that is long enough for HS256"
YEAR = {"from": "2026-01-01T00:00:00Z", "to": "2027-01-01T00:00:00Z"}
Refused = Callable[..., dict[str, Any]]
_projects = itertools.count(1)


def bearer(user: str, *roles: str) -> dict[str, str]:
    claims = {"iss": "i", "aud": "a", "sub": user, "exp": int(time.time()) + 600, "roles": list(roles)}
    return {"Authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}


@pytest.fixture(scope="module")
def ingress(start_ingress: Any) -> Any:
    return start_ingress(AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET, AUTH_UNSCOPED_TOKENS="1")


@pytest.fixture
async def url(chat: Any) -> str:
    sent = await chat.send("hello")
    return f"{BASE}/{sent['conversation_id']}/turns/{sent['turn_id']}/feedback"


async def load_feedback(client: httpx2.AsyncClient, url: str) -> list[dict[str, Any]]:
    return (await client.get(url.removesuffix("/feedback"))).json().get("feedback", [])


async def test_a_second_rating_replaces_the_first_and_null_clears_it(client: httpx2.AsyncClient, url: str) -> None:
    await client.post(url, json={"reaction": "ok", "text": "good"})
    second = await client.post(url, json={"reaction": "not_ok", "text": "bad", "ts": "2026-01-01T00:00:00Z"})
    after_second = await load_feedback(client, url)
    cleared = await client.post(url, json={"reaction": None})

    assert second.json()["feedback"]["reaction"] == "not_ok"
    assert [item["text"] for item in after_second] == ["bad"]
    assert cleared.json()["cleared"] is True
    assert await load_feedback(client, url) == []


async def test_judgements_of_machines_add_up(client: httpx2.AsyncClient, url: str) -> None:
    for confidence, role in ((0.5, "privileged"), (0.9, "admin")):
        body = {"reaction": "neutral", "origin": "machine", "confidence": confidence}
        answer = await client.post(url, json=body, headers=bearer("dev", role))
        assert answer.status_code == 200, answer.text
    await client.post(url, json={"reaction": "ok"})

    assert sorted(item["origin"] for item in await load_feedback(client, url)) == ["machine", "machine", "user"]


@pytest.mark.parametrize(
    "body", [{}, {"reaction": "x"}, {"reaction": "ok", "confidence": 1}, {"reaction": "ok", "ts": "x"}]
)
async def test_invalid_feedback_is_refused(
    client: httpx2.AsyncClient, url: str, refused: Refused, body: dict[str, Any]
) -> None:
    refused(await client.post(url, json=body), 422)


async def test_only_those_with_the_right_judge_as_machines(
    client: httpx2.AsyncClient, url: str, refused: Refused
) -> None:
    body = {"reaction": "ok", "origin": "machine", "confidence": 1}

    refused(await client.post(url, json=body), 403)
    refused(await client.post(url, json=body, headers=bearer("dev", "registered", "paid")), 403)

    assert await load_feedback(client, url) == []


@pytest.mark.parametrize("ts", ["2026-01-01T00:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00"])
async def test_a_time_that_no_calendar_knows_is_refused(
    client: httpx2.AsyncClient, url: str, refused: Refused, ts: str
) -> None:
    refused(await client.post(url, json={"reaction": "ok", "ts": ts}), 422)


class Judges:
    """Turns of a separate project, each rated by its owner."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.base = f"/conversations/default/judged-{next(_projects)}"

    async def judge(self, user: str, reaction: str | None, ts: str, text: str = "", **more: Any) -> str:
        headers = {"X-Dev-User": user} if "origin" not in more else bearer(user, "privileged")
        sent = (await self.http.post(f"{self.base}/new/messages", json={"text": "hello"}, headers=headers)).json()
        url = f"{self.base}/{sent['conversation_id']}/turns/{sent['turn_id']}/feedback"
        body = {"reaction": reaction, "ts": ts, "text": text, **more}
        answer = await self.http.post(url, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return str(sent["conversation_id"])

    async def report(self, headers: dict[str, str], **changes: Any) -> httpx2.Response:
        url = f"{self.base}/feedback/conversations-in-period"
        return await self.http.post(url, json={**YEAR, **changes}, headers=headers)

    async def summary(self, headers: dict[str, str], **params: str) -> httpx2.Response:
        return await self.http.get(f"{self.base}/feedback/summary", params=params, headers=headers)


@pytest.fixture
def judges(client: httpx2.AsyncClient) -> Judges:
    return Judges(client)


ANN = {"X-Dev-User": "ann"}


async def test_satisfaction_counts_people_and_leaves_machines_beside_them(judges: Judges) -> None:
    for day, reaction in enumerate(("ok", "ok", "not_ok", "neutral"), start=1):
        await judges.judge("ann", reaction, f"2026-02-0{day}T00:00:00Z")
    await judges.judge("ann", None, "2026-02-05T00:00:00Z", text="So so.")
    await judges.judge("ann", "not_ok", "2026-02-06T00:00:00Z", origin="machine", confidence=0.25)

    whole = (await judges.summary(ANN)).json()
    first = (await judges.summary(ANN, to="2026-02-03T00:00:00Z")).json()
    none = (await judges.summary(ANN, to="2026-01-03T00:00:00Z")).json()

    assert (whole["scope"], whole["satisfaction"], whole["turns"], whole["conversations"]) == ("own", 0.5, 6, 6)
    assert whole["user"] == {"ok": 2, "not_ok": 1, "neutral": 1, "unrated": 1}
    assert (whole["machine"]["not_ok"], whole["machine_confidence"]) == (1, 0.25)
    assert first["satisfaction"] == 1.0
    assert (none["satisfaction"], none["turns"], none["machine_confidence"]) == (None, 0, None)


async def test_a_period_lists_the_conversations_judged_in_it_the_last_first(judges: Judges) -> None:
    made = [await judges.judge("ann", "ok", f"2026-03-0{day}T00:00:00Z") for day in range(1, 6)]
    await judges.judge("ann", "ok", "2026-04-01T00:00:00Z")
    march = {"from": "2026-03-01T00:00:00Z", "to": "2026-04-01T00:00:00Z"}

    seen: list[str] = []
    cursor = None
    while True:
        page = (await judges.report(ANN, **march, limit=2, cursor=cursor)).json()
        seen += [item["conversation_id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == made[::-1]
    assert page["items"][0]["user"]["ok"] == 1
    assert page["items"][0]["title"] is not None


async def test_only_an_admin_sees_the_whole_project(judges: Judges, refused: Refused) -> None:
    mine = await judges.judge("ann", "ok", "2026-03-01T00:00:00Z")
    his = await judges.judge("bob", "not_ok", "2026-03-02T00:00:00Z")
    other = Judges(judges.http)
    await other.judge("ann", "not_ok", "2026-03-03T00:00:00Z")
    admin = bearer("root", "admin")

    project = (await judges.report(admin)).json()
    summary = (await judges.summary(admin)).json()
    own = (await judges.report(ANN)).json()
    refused(await judges.report(ANN, scope="project"), 403)
    refused(await judges.summary(bearer("ann", "privileged"), scope="project"), 403)

    assert [(item["conversation_id"], item["user_id"]) for item in project["items"]] == [(his, "bob"), (mine, "ann")]
    assert {item["title"] for item in project["items"]} == {None}
    assert (summary["scope"], summary["satisfaction"], summary["turns"]) == ("project", 0.5, 2)
    assert [item["conversation_id"] for item in own["items"]] == [mine]
    assert (await judges.summary(admin, scope="own")).json()["turns"] == 0


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"from": None}, 422),
        ({"from": "yesterday"}, 422),
        ({"from": "2026-01-01T00:00:00"}, 422),
        ({"to": "2026-01-01T00:00:00Z"}, 422),
        ({"to": "9999-01-01T00:00:00Z"}, 422),
        ({"limit": 0}, 422),
        ({"scope": "tenant"}, 422),
        ({"cursor": ""}, 422),
        ({"cursor": "W10"}, 400),
        ({"unknown": 1}, 422),
    ],
)
async def test_invalid_reports_are_refused(
    judges: Judges, refused: Refused, changes: dict[str, Any], status: int
) -> None:
    refused(await judges.report(ANN, **changes), status)


@pytest.mark.parametrize(
    "params",
    [{"from": "x"}, {"to": "2026-01-01"}, {"from": YEAR["to"], "to": YEAR["from"]}, {"scope": "tenant"}],
)
async def test_invalid_summaries_are_refused(judges: Judges, refused: Refused, params: dict[str, str]) -> None:
    refused(await judges.summary(ANN, **params), 422)
