"""Measuring: members and collectives on tasks (``eval``), contests, and judges under test."""
