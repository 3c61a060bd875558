"""The version of holdfast, in a module of its own so that other modules need not import the public interface."""

__version__ = "0.1.0"
