"""The first directory on the nursery's module search path: it must contain only `sitecustomize`."""
