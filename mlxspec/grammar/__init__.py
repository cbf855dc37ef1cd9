"""Grammars: which tokens may follow, so that a reply fits the requested format."""
