"""Data: what codes and lines mean. Loaded once, and checked while loading."""
