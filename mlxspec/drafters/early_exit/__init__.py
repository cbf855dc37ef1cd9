"""The early-exit drafter: the target's own lower layers draft through a small trained exit."""
