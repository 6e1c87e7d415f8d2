"""The code shared by all programs of Everturn."""

__version__ = "0.1.0"
"""The version of the packages, whose metadata the images lack; test_traces.py compares them."""
