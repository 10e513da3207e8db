"""Settings of the property tests: on a busy machine time says nothing about an example."""

from hypothesis import settings

settings.register_profile("segments", deadline=None)
settings.load_profile("segments")
