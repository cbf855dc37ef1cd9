"""The APIs of the server, one file each: from fields to settings, and from pieces to JSON."""
