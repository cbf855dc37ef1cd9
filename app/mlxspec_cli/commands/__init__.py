"""The commands, one a file; each returns an exit code."""
