"""The frozen structs that all other packages of holdfast use. This package imports no other package of holdfast."""
