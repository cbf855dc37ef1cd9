"""A target on several machines: rank 0 decides, the others compute what it sends them."""
