"""The engine: which reply has the target, and one reply written step by step."""
