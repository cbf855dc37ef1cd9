"""Train drafters for a target on text that the target itself wrote."""
