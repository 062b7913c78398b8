"""The report of a run: one HTML page that asks nobody for anything.

gather.py collects, sample.py says which trajectories, packing.py makes them small, page.py writes; page.css and the
scripts beside them are what the page looks like and does.
"""
