"""The parts of the fault engine, all pure: policy, readers of policy files, the fold, and graceful tolerance."""
