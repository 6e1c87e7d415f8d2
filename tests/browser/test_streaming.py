"""Streaming of a running turn: across a reload, a broken network, and in two tabs."""

from typing import Any

import pytest
from browsing.person import Person
from faults.proxy import FaultProxy
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

BEGIN, END = "One two three", "come back to in its middle."


async def check_as_stored(person: Person, harness: Any) -> None:
    """Waits for the end; then the page shows each answer once, as REST returns it."""
    await person.look()
    await person.finish()
    state = await harness.clients[0].fetch(await person.read_conversation_id())
    await expect(person.turns).to_have_count(len(state.turns))
    for number, turn in enumerate(state.turns):
        await expect(person.turns.nth(number)).to_contain_text(turn.answer)
        shown = await person.turns.nth(number).inner_text()
        assert shown.count(turn.text) == 1
        assert shown.count(turn.answer) == 1


async def test_an_answer_is_streamed(person: Person, harness: Any) -> None:
    await person.send("script:slow please")

    await expect(person.reply).to_contain_text(BEGIN)
    await expect(person.button("Stop")).to_be_visible()
    assert END not in await person.reply.inner_text()
    await expect(person.reply).to_contain_text(END)
    await check_as_stored(person, harness)


async def test_a_reload_loses_and_duplicates_nothing(person: Person, harness: Any) -> None:
    await person.send("script:slow please")
    await expect(person.reply).to_contain_text(BEGIN)

    await person.page.reload()

    await expect(person.reply).to_contain_text(END)
    await check_as_stored(person, harness)


async def test_an_unresponsive_server_is_reported_until_it_responds(person: Person, link: FaultProxy) -> None:
    await person.send("script:plain please")
    # The field of the new conversation disappears with its reply, and text written before it too.
    await expect(person.reply).to_contain_text("A plain answer.")
    await person.finish()
    alert = person.page.get_by_role("form", name="Message").get_by_role("alert")

    link.refuse()
    await person.offer("script:plain again")
    await expect(alert).to_have_text("The server is not responding.")
    link.heal()

    await expect(alert).to_have_count(0)
    await expect(person.field).to_have_value("script:plain again")


async def test_a_reconnect_duplicates_no_text(person: Person, harness: Any, link: FaultProxy) -> None:
    await person.send("script:slow please")
    await expect(person.reply).to_contain_text(BEGIN)

    link.refuse()
    await expect(person.page.get_by_text("Connection lost. Reconnecting… Your work is safe.")).to_be_visible()
    link.heal()

    await expect(person.reply).to_contain_text(END)
    await expect(person.page.get_by_text("Connection lost.")).to_have_count(0)
    await check_as_stored(person, harness)


async def test_two_tabs_show_the_same_turn(person: Person, harness: Any) -> None:
    await person.send("script:slow please")
    await person.read_conversation_id()
    other = await person.open_tab()

    for each in (person, other):
        await expect(each.reply).to_contain_text(END)
        await check_as_stored(each, harness)
    await other.send("script:slow again")

    await expect(person.turns).to_have_count(2)
    for each in (person, other):
        await check_as_stored(each, harness)
