"""The engine: one implementation of the contract over any journal."""
