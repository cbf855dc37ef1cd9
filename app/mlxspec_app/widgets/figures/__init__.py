"""Widgets that show figures."""
