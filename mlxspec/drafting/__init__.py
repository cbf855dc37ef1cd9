"""Which drafter drafts: from a word, a file or a measurement to one that is ready."""
