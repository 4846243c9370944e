"""The control socket: what operators and the command line ask of a running daemon."""
