"""Fills templates of sentences, and masks secrets in text. Pure."""
