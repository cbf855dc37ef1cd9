"""The widgets, one per file; none contains model logic."""
