"""The command line: one file a noun, output and errors each in one place."""
