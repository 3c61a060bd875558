"""Reads processes, logs and devices, runs checks, and reports the results. Other packages decide what follows."""
