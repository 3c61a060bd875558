"""The code that runs inside the prewarmed process (nursery): in the workers' interpreter, before the user's code.

It imports little, and only from the standard library, because the script sees in `sys.modules` every module that the
prewarmed process has imported. The package is loaded as `_holdfast_nursery`, and removed from `sys.modules` before a
worker continues. The interpreter is the user's, so this code must run on CPython 3.9 and later.
"""
