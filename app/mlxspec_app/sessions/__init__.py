"""Live sessions: the engine in its thread, and the conversation without a model."""
