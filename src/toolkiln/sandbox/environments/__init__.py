"""Environments: the packages that tools require, locked, built once, shared read-only."""
