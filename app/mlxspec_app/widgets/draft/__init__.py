"""Widgets that show a draft: its lane, its tree, its mask and its cache rows."""
