"""Certificates and tokens: who may join a cluster, and how its machines prove who they are."""
