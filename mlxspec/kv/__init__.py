"""The key-value cache: storage of rows, staging and committing them, and who sees whom."""
