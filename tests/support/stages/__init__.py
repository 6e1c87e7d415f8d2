"""A running platform with its clients, what they see folded, and the checker of what must hold at rest."""
