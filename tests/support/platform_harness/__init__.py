"""A running platform with its clients, what they see folded, and the checker of the invariants at the end."""
