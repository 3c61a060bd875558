"""The queue of one machine: who starts next, on which devices, and why each other job waits. All code is pure."""
