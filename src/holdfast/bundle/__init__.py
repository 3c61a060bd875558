"""Builds the runtime as a directory, called a tree, which runs in any Linux image. Copies it for `holdfast prepare`."""
