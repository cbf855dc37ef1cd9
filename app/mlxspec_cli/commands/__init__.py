"""What the command line does, one command per file; each returns an exit code."""
