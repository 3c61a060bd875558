"""`holdfast web`: serves pages about jobs and devices from a separate process that only reads."""
