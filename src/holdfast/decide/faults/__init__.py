"""The fault engine's parts, pure: policy, how files become one, the fold over events, and graceful tolerance."""
