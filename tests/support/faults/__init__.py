"""Faults between parts: a TCP proxy, and the platform with a proxy on each of its links."""
