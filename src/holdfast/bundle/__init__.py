"""The runtime as a directory (a tree) that any Linux image can run: builds it, and copies it for `holdfast prepare`."""
