"""Finds what sandboxed runs have left on the machine; every fault test ends with it."""
