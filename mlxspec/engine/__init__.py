"""The engine: its rounds, the reply that uses the target, and closing."""
