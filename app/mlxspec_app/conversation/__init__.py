"""A conversation as data: events folded to a state, its messages, rounds and figures."""
