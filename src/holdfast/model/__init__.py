"""Nouns: frozen structs that every station speaks of. Nothing else of holdfast is imported here."""
