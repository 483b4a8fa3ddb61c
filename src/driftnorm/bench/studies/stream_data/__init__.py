"""Where the images of a stream's domains come from, and the networks."""
