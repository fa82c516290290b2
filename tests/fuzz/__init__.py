"""Random calls of the ops, under random transforms: `python -m tests.fuzz`, and the property tests."""
