"""What a person sees of a turn while it goes on: streamed, through a reload, a broken network, and in two tabs."""

from typing import Any

import pytest
from browsing.person import Person
from faults.proxy import FaultProxy
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

BEGIN, END = "One two three", "come back to in its middle."


async def check_as_stored(person: Person, stage: Any) -> None:
    """When nothing goes on any more, the page shows each answer once, and it is what REST reads."""
    await expect(person.button("Send")).to_be_visible()
    state = await stage.clients[0].fetch(await person.read_conversation_id())
    await expect(person.turns).to_have_count(len(state.turns))
    for number, turn in enumerate(state.turns):
        await expect(person.turns.nth(number)).to_contain_text(turn.answer)
        shown = await person.turns.nth(number).inner_text()
        assert shown.count(turn.text) == 1
        assert shown.count(turn.answer) == 1


async def test_a_message_is_answered_word_by_word(person: Person, stage: Any) -> None:
    await person.send("script:slow please")

    await expect(person.reply).to_contain_text(BEGIN)
    await expect(person.button("Stop")).to_be_visible()
    assert END not in await person.reply.inner_text()
    await expect(person.reply).to_contain_text(END)
    await check_as_stored(person, stage)


async def test_a_reload_in_the_middle_loses_nothing_and_doubles_nothing(person: Person, stage: Any) -> None:
    await person.send("script:slow please")
    await expect(person.reply).to_contain_text(BEGIN)

    await person.page.reload()

    await expect(person.reply).to_contain_text(END)
    await check_as_stored(person, stage)


async def test_a_network_that_breaks_and_comes_back_doubles_no_text(
    person: Person, stage: Any, link: FaultProxy
) -> None:
    await person.send("script:slow please")
    await expect(person.reply).to_contain_text(BEGIN)

    link.refuse()
    await expect(person.page.get_by_text("The connection broke. Connecting again; nothing is lost.")).to_be_visible()
    link.heal()

    await expect(person.reply).to_contain_text(END)
    await expect(person.page.get_by_text("The connection broke.")).to_have_count(0)
    await check_as_stored(person, stage)


async def test_two_tabs_show_the_same_turn(person: Person, stage: Any) -> None:
    await person.send("script:slow please")
    await person.read_conversation_id()
    other = Person(await person.page.context.new_page(), person.page.url, person.alarms)
    other.watch()
    await other.open()

    for each in (person, other):
        await expect(each.reply).to_contain_text(END)
        await check_as_stored(each, stage)
    await other.send("script:slow again")

    await expect(person.turns).to_have_count(2)
    for each in (person, other):
        await check_as_stored(each, stage)


async def test_a_turn_is_stopped_while_it_runs(person: Person, stage: Any) -> None:
    await person.send("script:slow please")
    await expect(person.reply).to_contain_text(BEGIN)

    await person.button("Stop").click()

    await expect(person.button("Send")).to_be_visible()
    await expect(person.reply.get_by_text("The turn was stopped; this is what there was.")).to_be_visible()
    state = await stage.clients[0].fetch(await person.read_conversation_id())
    assert [turn.outcome for turn in state.turns] == ["stopped"]


async def test_what_is_added_while_a_turn_runs_gets_its_receipt(person: Person, stage: Any) -> None:
    await person.send("script:slow please")
    await expect(person.reply).to_contain_text(BEGIN)

    await person.send("And mind the south.")

    receipt = person.page.get_by_role("group", name="You added", exact=True)
    await expect(receipt).to_contain_text("And mind the south.")
    await expect(receipt).to_contain_text("You added · taken up in round 2")
    await expect(person.reply).to_contain_text("The second answer heeds what was added.")
    state = await stage.clients[0].fetch(await person.read_conversation_id())
    assert [signal.state for turn in state.turns for signal in turn.signals] == ["applied"]


async def test_hostile_markup_in_an_answer_stays_text(person: Person) -> None:
    await person.send("script:hostile please")

    await expect(person.reply).to_contain_text("Before")
    await expect(person.button("Send")).to_be_visible()
    assert await person.page.evaluate("window.hurt") is None
    assert await person.reply.locator("img, script, a[href^=javascript]").count() == 0
