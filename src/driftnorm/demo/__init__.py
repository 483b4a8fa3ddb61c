"""The main job on data that come with the package: train, shift, adapt, measure."""
