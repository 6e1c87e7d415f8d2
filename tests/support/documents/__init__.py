"""Documents whose examples are played as a reader plays them."""
