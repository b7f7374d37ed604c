"""MWRA's planner: what there is (`cluster`), what a policy takes (`estimates`), who gets what (`modes`), and what would fit
where something does not (`remedies`). All of it are pure functions of architectures and sizes; `algorithms.devices` puts them
together.
"""
