"""Trained heads from what users have: any known layout in, one set of names out."""
