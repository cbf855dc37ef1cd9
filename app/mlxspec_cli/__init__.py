"""The command line: parsing, what the commands share, and what they print."""
