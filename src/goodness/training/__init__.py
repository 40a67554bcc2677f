"""The loops: what trains a network block by block, and what brings a run through kills and full disks."""
