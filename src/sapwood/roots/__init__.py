"""Roots of sessions as processes of their own, and the ports of front ends to them."""
