"""Training recipes that make networks robust."""
