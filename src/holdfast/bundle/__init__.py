"""The runtime as a directory that any Linux image can run: how it is built, how `holdfast prepare` lays it down."""
