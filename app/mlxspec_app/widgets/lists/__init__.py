"""Lists from which the user chooses."""
