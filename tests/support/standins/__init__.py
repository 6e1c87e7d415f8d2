"""Images that replace third-party ones if none can be pulled: the same programs, from this machine."""
