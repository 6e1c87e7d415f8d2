"""Reads what the model writes: channels, actions and citations.

The agent reads its decisions with `decision_stream.py`. `streaming.py` is the API of bundles, which stream replies of
their own; nothing in this package uses it yet.
"""
