"""Certificates and tokens: admission to a cluster, and the identity of its machines."""
