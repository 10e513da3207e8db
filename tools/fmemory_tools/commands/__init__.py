"""The commands, one a file. Each module is cheap to import: what works is imported when it runs."""
