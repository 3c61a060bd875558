"""Builds the runtime tree, a directory that runs in any Linux image, and copies it for `holdfast prepare`."""
