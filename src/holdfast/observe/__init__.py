"""This package reads processes, logs, devices and checks, and reports what it finds. Other packages decide about it."""
