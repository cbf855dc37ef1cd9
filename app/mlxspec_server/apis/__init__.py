"""The APIs that the server speaks, one file each: fields to settings, and pieces to JSON."""
