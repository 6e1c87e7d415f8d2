"""Several actions in one reply: which of them may run together, and what of them is shown while they are written."""
