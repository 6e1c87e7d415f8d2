"""Three durable steps and two tasks. Each step writes one line to a server; the message names its port and, if the
process is to be killed once, the place."""

import asyncio
import os
import signal

from everturn_sdk import BaseWorkflow, ChannelSpec, Payload, RunResult, StepAmbiguous


class Clerk(BaseWorkflow):
    async def run(self, payload: Payload) -> RunResult:
        _, port, self.dies_at = payload.text.split(" ", 2)
        self.port, self.turn_id = int(port), payload.turn_id
        react = await self.build_react()
        await self._pass("start")
        await self._write_once("open")
        await self._pass("opened")
        drafts, _ = await self.models.stream_with_channels(
            messages=[{"role": "user", "content": "script:draft"}],
            channels=[ChannelSpec("draft", emit_marker="canvas")],
            artifact_name="draft",
        )
        await self._pass("drafted")
        await react.run(payload)
        await self._pass("answered")
        await self.step("note", self._write, "note", effect="idempotent")
        await self._pass("noted")
        second = await react.run("Check the ticket.")
        await self._pass("checked")
        await self._write_once("mail")
        await self._pass("mailed")
        await self.emit(drafts["draft"].raw, marker="timeline_text")
        await self._pass("shown")
        await self.feedback("ok", "The ticket is open.", confidence=0.9)
        await self._pass("judged")
        await self.store.put_attachment("ticket.txt", "open")
        await self._pass("filed")
        return second

    async def _write_once(self, key: str) -> None:
        try:
            await self.step(key, self._write, key)
        except StepAmbiguous:
            # The server knows whether the line has arrived.
            if await self._ask(f"count {key} {self.turn_id}") == "0":
                await self.step(f"{key} again", self._write, key)

    async def _write(self, key: str) -> str:
        await self._pass(f"before {key}")
        reply = await self._ask(f"write {key} {self.turn_id}")
        await self._pass(f"after {key}")
        return reply

    async def _pass(self, place: str) -> None:
        if place == self.dies_at and await self._ask(f"once {place.replace(' ', '-')} {self.turn_id}") == "1":
            os.kill(os.getpid(), signal.SIGKILL)

    async def _ask(self, line: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{line}\n".encode())
            return (await reader.readline()).decode().strip()
        finally:
            writer.close()
