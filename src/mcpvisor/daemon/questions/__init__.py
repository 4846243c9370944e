"""The questions of servers: who may answer them, for how long, and what an answer must be."""
