"""One widget per file; none holds model logic."""
