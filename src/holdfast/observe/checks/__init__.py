"""The built-in pre-checks, one per file. A check reports facts about this machine. Other code decides whether the job
may start.
"""
