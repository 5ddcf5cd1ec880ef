"""The commands of `passback`: a module is imported when its command is run."""
