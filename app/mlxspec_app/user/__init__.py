"""The user's files: where they lie, who may read them, and that they are whole."""
