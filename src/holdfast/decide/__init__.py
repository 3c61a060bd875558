"""The decisions of the owner and of the agents. This package never reads a clock, file, environment variable or random
number.
"""
