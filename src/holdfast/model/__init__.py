"""The frozen structs that all other packages of holdfast use. This package imports none of them."""
