"""Builds the runtime as a directory (a tree) that any Linux image can run, and copies it for `holdfast prepare`."""
