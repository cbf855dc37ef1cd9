"""Prediction: draft a text that the caller expects the reply to repeat for the most part."""
