"""A person in a real Chromium using what `make up` started: enters as a guest, and gets a chart despite a reload."""

import os
import shutil

import pytest
from browsing.person import Person
from playwright.async_api import async_playwright, expect
from standins.installation import OwnInstallation

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
SEEN_LIMIT_MS = 120_000
SALES = b"region,revenue\nNorth,12\nSouth,30\nNorth,5\nWest,8\n"


def find_chromium() -> str:
    """Fails the test without one."""
    found = next(filter(None, map(shutil.which, (os.environ.get("CHROMIUM", ""), *PROGRAMS))), None)
    if found is None:
        pytest.fail("There is no Chromium here: apt-get install chromium.", pytrace=False)
    return found


async def test_a_guest_gets_a_chart_and_a_reload_loses_nothing(installation: OwnInstallation):
    expect.set_options(timeout=SEEN_LIMIT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        page = await browser.new_page()
        page.set_default_timeout(SEEN_LIMIT_MS)
        person = Person(page, installation.url)
        person.watch()
        await page.goto(installation.url)
        await person.button("Continue as guest").click()
        await person.field.wait_for()

        await person.attach("sales.csv", SALES)
        await person.send("Total revenue by region as a bar chart")
        await person.read_conversation_id()
        await page.reload()

        await expect(person.reply).to_contain_text("North")
        chart = person.reply.get_by_role("img", name="sales.png").first
        await expect(chart).to_be_visible()
        assert await chart.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
        await expect(person.turns).to_have_count(1)
        assert person.alarms == []
        await browser.close()
