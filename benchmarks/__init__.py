"""How fast the product is: measured against TRL, against the machine, and against itself. See docs/benchmarks.md."""
