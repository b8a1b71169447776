"""What is wrong with a configuration on this machine, and how to mend it, for the commands of `cli`."""
