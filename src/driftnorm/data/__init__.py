"""Where images and labels come from.

Clean data: `opening.load_clean` (any path), `cifar`, `mnist`, `npz`, `pictures`, `digits`.
Corrupted data: `cifar_c` and `imagenet_c` (released files), `corrupted` (on the fly), `generate`
(the released layouts from clean data). Getting and checking: `sources`, `fetch`, `check`.
"""
