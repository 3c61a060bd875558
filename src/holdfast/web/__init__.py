"""`holdfast web`: serves pages about jobs and devices. It runs in a separate process, which only reads."""
