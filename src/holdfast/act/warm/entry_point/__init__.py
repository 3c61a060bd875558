"""The directory that comes first on the module search path of the prewarmed process. It must contain only
`sitecustomize`.
"""
