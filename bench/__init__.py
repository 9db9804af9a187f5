"""Measurements of Phalanx itself."""
