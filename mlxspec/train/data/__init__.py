"""Training data: a target writes conversations, which are filtered and stored."""
