"""The engine: its rounds, which reply has the target, and how it ends."""
