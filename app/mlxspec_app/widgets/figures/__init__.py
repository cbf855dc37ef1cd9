"""The widgets that show figures."""
