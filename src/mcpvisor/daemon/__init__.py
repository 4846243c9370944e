"""The daemon: wires the parts together, serves them and speaks to the operating system."""
