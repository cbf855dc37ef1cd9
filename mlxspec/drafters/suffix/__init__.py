"""The suffix drafter: what followed the longest earlier match of the latest tokens."""
