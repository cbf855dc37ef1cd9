"""A draft tree, its shape, the draft that carries it, and the round that verified it."""
