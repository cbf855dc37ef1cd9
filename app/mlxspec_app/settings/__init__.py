"""What users can set: the file, its rules and words, and the keys."""
