"""Answers without a model, so that asking costs nothing and does not depend on a provider."""

from everturn_sdk import BaseWorkflow, Payload


class Canary(BaseWorkflow):
    async def run(self, payload: Payload) -> str:
        return "I am here."
