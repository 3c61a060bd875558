"""The version of holdfast, for parts of the package that must not import its public face."""

__version__ = "0.1.0"
