"""Hostile markup in answers, file names and generated pages."""

import sys

import pytest
from browsing.forbidden_server import ForbiddenServer, visit
from browsing.person import Person
from browsing.replies import HOSTILE_NAME
from playwright.async_api import Route, expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

ALLOWLIST_SINCE = 152
FREEZE_LIMIT_MS = 3_000
"""Without limits this took more than 20 s; on an idle machine it now takes less than 200 ms."""
WATCH_TASKS = """() => {
    window.tasks = [];
    new PerformanceObserver(seen => {
        for (const { duration } of seen.getEntries()) window.tasks.push(Math.round(duration));
    }).observe({ type: "longtask", buffered: true });
}"""
ACTIVE = "img, script, iframe, svg:not([class*=lucide]), [onload], [onerror], a[href^='javascript'], a[href^='data']"


async def test_hostile_markup_in_an_answer_stays_text(person: Person) -> None:
    await person.send("script:hostile please")

    await expect(person.reply).to_contain_text("Before")
    await person.finish()
    await expect(person.reply).to_contain_text("<script>window.hurt=1</script>")
    assert await person.page.evaluate("window.hurt") is None
    assert await person.reply.locator(ACTIVE).count() == 0


@pytest.mark.slow
async def test_hostile_markup_in_a_message_and_in_a_title_stays_text(person: Person) -> None:
    text = "<img src=x onerror=window.hurt=1> script:plain"
    await person.send(text)

    await expect(person.page.get_by_role("group", name="You said")).to_contain_text(text)
    await person.finish()
    title = person.page.get_by_role("link", name="<img src=x").first
    await expect(title).to_be_visible()
    assert await person.page.evaluate("window.hurt") is None


async def test_markup_in_a_file_name_is_shown_as_text(person: Person) -> None:
    await person.attach(HOSTILE_NAME, b"month,sold\n2024-01,3\n")
    await expect(person.page.get_by_role("list", name="Files to send")).to_contain_text(HOSTILE_NAME)
    await person.send("script:plain with a file")
    await person.finish()

    await person.button(f"Open {HOSTILE_NAME}").click()

    panel = person.page.get_by_role("complementary", name=HOSTILE_NAME)
    await expect(panel.get_by_role("cell", name="2024-01")).to_be_visible()
    assert await person.page.evaluate("window.hurt") is None
    async with person.page.expect_download() as started:
        await panel.get_by_role("button", name="Download").click()
    saved = await (await started.value).path()
    assert saved.read_bytes() == b"month,sold\n2024-01,3\n"


async def test_a_generated_page_runs_in_its_frame_and_reaches_nothing(
    person: Person, stranger: ForbiddenServer
) -> None:
    await visit(stranger)
    stranger.visits.clear()
    await person.send("script:page please")
    await person.finish()

    await person.button("Open outputs/page.html").first.click()
    await expect(person.page.get_by_text("The agent generated this page.")).to_be_visible()
    assert await person.page.locator("iframe").count() == 0
    await person.button("Run this page").click()

    report = person.page.frame_locator("iframe[title='Page made by the agent']").locator("#report")
    await expect(report).to_contain_text("origin null")
    assert await report.inner_text() == (
        "origin null, parent closed, storage closed, cookies closed, window closed, top closed, dialog closed,"
        " network closed, our server closed, sockets closed, peers closed, nested pages closed, workers closed"
    )
    await person.page.evaluate("document.querySelector('iframe').contentWindow.postMessage('leave', '*')")
    await expect(report).to_have_count(0)
    await expect(person.button("Close panel")).to_be_visible()
    assert await person.page.evaluate("[window.hurt, localStorage.getItem('hurt'), document.cookie]") == [
        None,
        None,
        "",
    ]
    assert len(person.page.context.pages) == 1
    # Chromium before 152 ignores `Connection-Allowlist` and connects to the target of a navigation before it blocks it.
    browser = person.page.context.browser
    knows_allowlist = browser is not None and int(browser.version.split(".")[0]) >= ALLOWLIST_SINCE
    harmless = () if knows_allowlist else ("connected", repr(b""))
    assert [visit for visit in stranger.visits if visit not in harmless] == []


@pytest.mark.parametrize("knows_allowlist", [True, False], ids=["with Connection-Allowlist", "without"])
async def test_a_page_of_the_agent_keeps_no_frame_whatever_it_replaces(
    person: Person, stranger: ForbiddenServer, knows_allowlist: bool
) -> None:
    async def pass_on(route: Route) -> None:
        """Pass the frame on as a browser reads it that does not know the header."""
        response = await route.fetch()
        kept = {name: value for name, value in response.headers.items() if name != "connection-allowlist"}
        assert kept != response.headers
        await route.fulfill(response=response, headers=kept)

    if not knows_allowlist:
        await person.page.route("**/artifact-frame", pass_on)
    person.page.on("crash", lambda _: person.alarms.append("the page crashed"))
    await visit(stranger)
    stranger.visits.clear()
    await person.send("script:frames please")
    await person.finish()
    await person.page.evaluate("() => { window.heard = []; onmessage = ({ data }) => { heard.push(data); }; }")

    await person.button("Open outputs/frames.html").first.click()
    await person.button("Run this page").click()

    frame = person.page.frame_locator("iframe[title='Page made by the agent']")
    await expect(frame.locator("#result")).to_have_text("all tried")
    assert await person.page.evaluate("heard") == ["artifact-frame"]
    assert [visit for visit in stranger.visits if visit.startswith("datagram")] == []
    assert person.alarms == []


@pytest.mark.slow
@pytest.mark.parametrize("script", ["script:emphasis", "script:underlines"])
async def test_a_text_that_is_hard_to_parse_does_not_freeze_the_page(person: Person, script: str) -> None:
    await person.page.evaluate(WATCH_TASKS)
    await person.send(f"{script} please")
    await person.finish()
    await expect(person.reply).to_contain_text("The end.")
    await person.page.reload()
    await person.page.evaluate(WATCH_TASKS)
    await expect(person.reply).to_contain_text("The end.")

    longest = max(await person.page.evaluate("window.tasks"), default=0)
    sys.stdout.write(f"\nlongest task with {script}: {longest} ms\n")
    assert longest < FREEZE_LIMIT_MS
