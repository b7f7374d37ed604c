"""Measurements: of speed, of the verifier, and of what sharing experience is worth."""
