"""A stand-in of a cluster for tests: the API of Pods over real TCP, and a node that really starts their containers."""
