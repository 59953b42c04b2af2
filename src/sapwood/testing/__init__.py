"""What tests of programs and of Sapwood itself use: the protocol without processes."""
