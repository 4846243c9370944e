"""Operating-system processes: starting them, ending them for certain, and reading what they write."""
