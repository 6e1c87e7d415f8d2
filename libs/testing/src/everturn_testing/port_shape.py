"""Compares a driver with its port: the same methods with the same parameters."""

import inspect


def find_differences(port: type, driver: type) -> list[str]:
    """What a call written for the port would stumble over; empty when the driver fits."""
    methods = [(name, method) for name, method in inspect.getmembers(port, inspect.isfunction) if name[0] != "_"]
    return [
        difference for name, method in methods for difference in _compare(name, method, getattr(driver, name, None))
    ]


def _compare(name: str, wanted: object, offered: object) -> list[str]:
    if not callable(wanted) or not callable(offered):
        return [f"{name} is missing"]
    shapes = [
        [
            (parameter.name, parameter.kind, parameter.default)
            for parameter in inspect.signature(one).parameters.values()
        ]
        for one in (wanted, offered)
    ]
    return [] if shapes[0] == shapes[1] else [f"{name} takes {shapes[1]}, not {shapes[0]}"]
