"""Environments: the packages that tools require, locked, built once, shared read-only.

Each set of requirements has its own environment. A lock determines what is installed, and
stays in force until an upgrade is adopted.
"""

from toolkiln.sandbox.environments.environments import Environment, Environments, LockCandidate
from toolkiln.sandbox.environments.lockfile import normalise, read_requirements_file
from toolkiln.sandbox.environments.quota import Quota
from toolkiln.sandbox.environments.uv import Report

__all__ = [
    "Environment",
    "Environments",
    "LockCandidate",
    "Quota",
    "Report",
    "normalise",
    "read_requirements_file",
]
