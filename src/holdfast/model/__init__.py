"""The frozen structs that all parts of holdfast use. This package imports nothing else of holdfast."""
