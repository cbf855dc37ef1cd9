"""Who answers: the engine in its thread, or nobody while no model is loaded."""
