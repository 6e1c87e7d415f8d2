"""Processes that a test may kill without harm to anyone else: a broker, a container engine."""
