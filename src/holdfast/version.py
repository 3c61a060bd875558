"""The version of holdfast, in a module that other modules can import without the package's public interface."""

__version__ = "0.1.0"
