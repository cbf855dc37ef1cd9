"""Drafts under a grammar: forced tokens before and inside the draft of another drafter."""
