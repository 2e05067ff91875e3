"""Fixtures of execution.conftest for these tests."""

from execution import conftest as execution_conftest

kiln = execution_conftest.kiln
make_kiln = execution_conftest.make_kiln
start_python = execution_conftest.start_python
