"""Tests of the catalog: files, names, versions, admission."""
