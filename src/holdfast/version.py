"""The version of holdfast, for modules that must not import the package's public interface."""

__version__ = "0.1.0"
