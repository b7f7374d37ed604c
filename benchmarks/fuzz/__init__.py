"""Hostile inputs for everything that reads foreign text: verifiers, THL, exchange, problem files."""
