"""The fault engine: its policy, the readers of policy files, the engine itself, and graceful tolerance. All code is
pure.
"""
