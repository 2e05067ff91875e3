"""`python -m toolkiln.surfaces.cli`: the command, where it is not on the path."""

from toolkiln.surfaces.cli import main

main()
