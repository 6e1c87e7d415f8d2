"""Random schedules of what people say and what breaks meanwhile, each from a seed."""
