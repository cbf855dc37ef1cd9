"""What a drafter hands over: a draft tree, its shape, and the draft that carries it."""
