"""`python -m toolkiln`: the `toolkiln` command, where the script is not on the PATH."""

from toolkiln.surfaces.cli import main

main()
