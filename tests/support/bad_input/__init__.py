"""Requests that no honest client sends, as tables: each case with its expected answer."""
