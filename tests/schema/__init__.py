"""Tests of schemas, compilers and argument checking."""
