"""The user's files: their folders, their permissions, and writes that are never partial."""
