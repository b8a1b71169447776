"""`dragoman run`: start a coding agent with a gateway.

Most of it is the life of two processes: a gateway for one command, and a command that must get the terminal and its
signals as if there were no other process.
"""
