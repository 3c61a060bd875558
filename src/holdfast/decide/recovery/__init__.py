"""Decides what follows a failed attempt, from the budgets and from the signs of progress. Pure."""
