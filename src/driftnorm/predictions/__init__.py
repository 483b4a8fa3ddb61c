"""Runs on the user's own model and data: opening, streaming, keeping and repeating them."""
