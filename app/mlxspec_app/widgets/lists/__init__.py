"""The widgets from which something is chosen."""
