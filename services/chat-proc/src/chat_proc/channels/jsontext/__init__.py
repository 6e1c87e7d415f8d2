"""Reading JSON that a model writes, in pieces and whole."""
