"""The innocent engine: a small honest spec-v2 scheduler that doesn't know that it is being tested."""
