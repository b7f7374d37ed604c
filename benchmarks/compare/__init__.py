"""The comparison of algorithms: a grid of runs, what is measured of them, and the statistics made of it."""
