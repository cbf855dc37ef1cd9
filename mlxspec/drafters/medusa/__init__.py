"""The Medusa drafter: several heads guess the tokens after the next one, all at once."""
