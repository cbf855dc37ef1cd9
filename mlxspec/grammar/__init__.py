"""Grammars: which tokens a reply may go on with, so that its text fits what was asked for."""
