"""The `fmemory` command: looks into a memory, and brings real runs and notes into one."""
