"""Environments: the packages that tools require, locked, built once, shared read-only.

Each set of requirements has its own environment. A lock determines what is installed, and
stays in force until an upgrade is adopted.
"""
