"""Coding agents that run in the sandbox, beside the agent that decides in rounds."""
