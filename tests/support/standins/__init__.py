"""Images that stand in for those of others where none can be pulled: the same programs, from this machine."""
