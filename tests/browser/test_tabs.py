"""Many tabs of one browser, which shares six connections per server among all tabs."""

from typing import Any

import pytest
from browsing.person import Person
from faults.proxy import FaultProxy
from playwright.async_api import Page, expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

TABS = 8
PLACES = 4
WAITS = "Everturn is open in too many tabs."
# Playwright keeps all tabs visible; this hides a tab as a browser does with background tabs.
LOOK = """is_looked_at => {
    const state = is_looked_at ? "visible" : "hidden";
    Object.defineProperty(document, "visibilityState", { configurable: true, get: () => state });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


async def show(page: Page, *, looked_at: bool) -> None:
    await page.evaluate(LOOK, looked_at)


@pytest.mark.slow
async def test_eight_windows_can_all_send_and_those_without_a_slot_say_so(person: Person, harness: Any) -> None:
    await person.send("script:plain please")
    await person.finish()
    tabs = [person, *[await person.open_tab() for _ in range(TABS - 1)]]

    for tab in tabs[PLACES:]:
        await tab.look()
        await expect(tab.page.get_by_text(WAITS)).to_be_visible()
    await tabs[-1].send("script:plain again")
    await person.look()
    await expect(person.turns).to_have_count(2)
    await tabs[0].page.close()
    await tabs[1].page.close()

    for tab in tabs[PLACES : PLACES + 2]:
        await tab.look()
        await expect(tab.turns).to_have_count(2)
        await expect(tab.page.get_by_text(WAITS)).to_have_count(0)
    state = await harness.clients[0].fetch(await tabs[2].read_conversation_id())
    assert [turn.status for turn in state.turns] == ["completed", "completed"]


async def test_a_hidden_tab_closes_its_stream_and_misses_nothing(
    person: Person, harness: Any, link: FaultProxy
) -> None:
    await person.send("script:plain please")
    await person.finish()
    conversation_id = await person.read_conversation_id()
    streams = link.expect(f"{conversation_id}/events".encode())
    streams.clear()

    await show(person.page, looked_at=False)
    sent = await harness.clients[0].send_message(conversation_id, "script:plain again")
    await harness.watch(conversation_id).wait_ended(sent.turn_id)
    await harness.close()
    assert not streams.is_set()
    await expect(person.turns).to_have_count(1)
    await show(person.page, looked_at=True)

    await expect(person.turns).to_have_count(2)
    await expect(person.reply).to_contain_text("A plain answer.")
    assert streams.is_set()
