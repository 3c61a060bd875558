"""Memory: the journal, and the views over it."""
