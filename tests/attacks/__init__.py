"""Attacks: random trials of what must never break, each made again from its kind and number.

A kind is a module with a function ``trial(rng, folder)`` that makes one attempt in an empty
folder, raises `Fallen` where a promise is broken, and returns how many rows, files or kills it
tried. ``make test`` runs the first few trials of each kind; ``make attack`` runs as many as
fit into the time.
"""
