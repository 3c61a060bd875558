"""What runs inside the nursery: in the workers' interpreter, before anything of the user's own has run.

Nothing but the standard library is used here, and as little of it as possible: all that the nursery imports, the
script finds already imported. The package is loaded under the name `_holdfast_nursery` and taken out of `sys.modules`
before a worker goes on. That interpreter is the user's: what stands here runs under CPython 3.9 and newer.
"""
