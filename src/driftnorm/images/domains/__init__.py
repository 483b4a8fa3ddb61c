"""Pictures of several domains, in files or in memory."""
