"""What a person types: the verbs, their options, completion, and messages about mistakes."""
