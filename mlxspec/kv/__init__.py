"""The key-value cache: storage of rows, stage and commit, and attention masks."""
