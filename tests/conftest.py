"""Settings of the property tests: on a busy machine time says nothing about an example."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
