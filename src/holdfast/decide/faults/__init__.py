"""The fault engine, all pure: the policy, the readers of policy files, the engine itself, and graceful tolerance."""
