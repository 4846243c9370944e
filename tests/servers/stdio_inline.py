#!/usr/bin/env python3
"""Runs the Python text it is given as its first argument: for a server of one or two lines that one test needs."""

import sys

exec(sys.argv[1])
