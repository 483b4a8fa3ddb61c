"""The studies: each describes its cells, and how one of them becomes a row."""
