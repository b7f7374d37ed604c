"""The mathematical verifier: reading answers, comparing what they mean, and asking SymPy only where that is not enough."""
