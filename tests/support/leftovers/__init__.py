"""Finds what sandboxed runs have left on the machine: the last line of every fault test."""
