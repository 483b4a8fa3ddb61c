"""Getting published data sets."""
