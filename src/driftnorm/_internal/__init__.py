"""Plumbing that every part shares; nothing here is promised to users."""
