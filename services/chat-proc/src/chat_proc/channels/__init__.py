"""Reads what the model writes: channels, actions, citations, and the streaming API built on them."""
