"""Pages served from this machine: the guard around every one of them, and a run's live page."""
