"""Environments: the packages that tools require, locked, built once, shared read-only.

One environment for each set of requirements, so that those of two tools never meet. What
is installed is decided by a lock that stays in force until an upgrade is adopted. Running
a tool's examples before an adoption and mounting an environment are not done here.
"""

from toolkiln.execution.environments.environments import (
    Candidate,
    Entry,
    Environment,
    Environments,
)
from toolkiln.execution.environments.installer import Report
from toolkiln.execution.environments.quota import Quota
from toolkiln.execution.environments.requirements import normalise, read_requirements_file

__all__ = [
    "Candidate",
    "Entry",
    "Environment",
    "Environments",
    "Quota",
    "Report",
    "normalise",
    "read_requirements_file",
]
