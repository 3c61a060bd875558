"""`holdfast web`: pages about jobs and devices, from a process of its own that only reads."""
