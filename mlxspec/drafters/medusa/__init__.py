"""The Medusa drafter: several heads predict the tokens after the next one, all at once."""
