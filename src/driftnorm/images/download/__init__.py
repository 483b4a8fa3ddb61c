"""Downloads of published data sets."""
