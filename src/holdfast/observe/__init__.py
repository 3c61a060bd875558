"""Reads processes, logs and devices, and runs checks. Other packages decide what follows from the results."""
