"""Domain generalization: networks trained on some domains, adapted to one never seen.

Data: `sets` (folders ``domain/class/picture``), `digits` (RotatedMNIST, ColoredMNIST), `check`,
`cache` (pictures decoded once), `splits` (DomainBed's), `arrays` (what training sees), `augment`.
"""
