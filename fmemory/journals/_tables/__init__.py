"""A journal over any table of events: what databases share."""
