"""Settings of the property tests, and fixtures that tests of several kinds use.

On a busy machine time says nothing about an example, so no example has a deadline.
"""

from hypothesis import settings

from tests.browser import browser, chromium
from tests.postgres import postgres_server, postgres_url

__all__ = ["browser", "chromium", "postgres_server", "postgres_url"]

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
