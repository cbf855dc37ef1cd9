"""Making drafters for a target from nothing but its own text."""
