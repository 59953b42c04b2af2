"""OpenCL C as a language of sources."""
