"""A journal in PostgreSQL: docs/postgres.md. Importing it does not import the driver."""

from fmemory.journals._postgres.backend import PostgresMemoryBackend, open_table

__all__ = ["PostgresMemoryBackend", "open_table"]
