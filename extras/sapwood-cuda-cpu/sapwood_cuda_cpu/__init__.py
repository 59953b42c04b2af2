"""CUDA C++: what a source holds, what is refused, and the source that a CPU node compiles."""
