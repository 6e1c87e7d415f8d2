"""An agent for Chainlit that answers with 200 tokens at once."""

import asyncio

import chainlit


@chainlit.on_message
async def answer(_: chainlit.Message) -> None:
    message = chainlit.Message(content="")
    for _ in range(200):
        await message.stream_token("tok~ ")
        await asyncio.sleep(0)
    await message.send()
