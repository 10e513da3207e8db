"""Stores of released formats, made once and never changed, and the test that opens them."""
