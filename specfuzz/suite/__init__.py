"""What a test suite uses: a machine that is one test, and `run` for a scenario written by hand; knows no pytest."""
