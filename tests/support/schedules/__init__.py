"""Random schedules of messages and faults, each from a seed."""
