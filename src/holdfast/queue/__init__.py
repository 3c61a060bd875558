"""The process that runs a machine's queue of jobs. Users call it the core.

`decide/queue` decides which job starts. This package reads requests, keeps records, starts jobs and watches their ends.
"""
