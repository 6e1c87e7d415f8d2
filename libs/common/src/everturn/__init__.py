"""What all programs of Everturn share."""

__version__ = "0.1.0"
"""That of the packages, whose metadata the images do not have; test_traces.py compares them."""
