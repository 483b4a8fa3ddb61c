"""Domain sets: folders, checks, splits, caches, digits, batches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import idx_bytes, random_images, tar_bytes, write_pictures
from PIL import Image

from driftnorm._internal.cache_folder import cache_folder, made_once
from driftnorm.errors import DataError
from driftnorm.images.domains.augment import augment
from driftnorm.images.domains.cache import DESCRIPTION_FILE, PIXELS_FILE, cached_arrays
from driftnorm.images.domains.domain_arrays import DomainArrays, evaluation_batches
from driftnorm.images.domains.domain_check import check_domains
from driftnorm.images.domains.folder import open_domains
from driftnorm.images.domains.known import KNOWN_SETS
from driftnorm.images.domains.mnist_domains import ANGLES, COLOR_FLIPS, colored_mnist, rotated_mnist
from driftnorm.images.domains.named import open_arrays
from driftnorm.images.domains.splits import seed_hash, split_domain
from driftnorm.images.domains.survey import survey_folder
from driftnorm.images.image_set import ImageSet
from driftnorm.images.tensors import tensors
from driftnorm.training.batches import random_numbers
from driftnorm.training.domains.minibatches import Batches
from driftnorm.training.domains.plans import PlanOptions

PACS, VLCS, TERRA = KNOWN_SETS["pacs"], KNOWN_SETS["vlcs"], KNOWN_SETS["terraincognita"]


def quiet(text: str, done: int, total: int | None) -> None:
    pass


def own_set(folder: Path, names: tuple[str, ...] = ("day", "night"), each: int = 3) -> Path:
    """Two classes, pictures of several sizes and kinds."""
    sizes = {}
    for domain in names:
        for label in ("cat", "dog"):
            for number in range(each):
                kind = ("png", "jpg", "bmp")[number % 3]
                sizes[f"{domain}/{label}/{number:03d}.{kind}"] = (24 + number % 5, 32)
    write_pictures(folder, sizes)
    return folder


def empty_files(folder: Path, counts: dict[str, dict[str, int]]) -> Path:
    """A layout of files that are named like pictures; only a check would open them."""
    for domain, classes in counts.items():
        for label, number in classes.items():
            (folder / domain / label).mkdir(parents=True, exist_ok=True)
            for index in range(number):
                (folder / domain / label / f"{index}.jpg").touch()
    return folder


def few(known, each: int = 1) -> dict[str, dict[str, int]]:
    return {domain: dict.fromkeys(known.classes, each) for domain in known.domains}


# --- seeds and splits ---------------------------------------------------------------------------


def test_seed_hash_is_domainbeds() -> None:
    expected = (
        (894182419, 1514274641, 1325548499, 1796103049),
        (785910682, 1442673865, 1981683110, 1739848239),
        (472130416, 181139023, 248334461, 1709828778),
    )
    for trial, seeds in enumerate(expected):
        assert tuple(seed_hash(trial, domain) for domain in range(4)) == seeds
    assert seed_hash("PACS", "ERM", [0], 0, 0) == 94828300


@pytest.mark.parametrize(
    ("domain", "count", "sizes", "out", "inner"),
    [
        (0, 2048, (409, 1639), [548, 677, 1997, 977, 1553], [895, 510, 1575, 933, 362]),
        (1, 2344, (468, 1876), [1488, 562, 461, 570, 2092], [1129, 1175, 567, 1786, 1706]),
        (2, 1670, (334, 1336), [1441, 1432, 282, 669, 637], [764, 1046, 1426, 934, 1545]),
        (3, 3929, (785, 3144), [2743, 2083, 2744, 3449, 1159], [2874, 719, 2027, 468, 2746]),
    ],
)
def test_splits_of_pacs_are_domainbeds(domain, count, sizes, out, inner) -> None:
    split = split_domain(count, 0, domain)
    assert (len(split.out), len(split.inner)) == sizes
    assert split.out[:5].tolist() == out
    assert split.inner[:5].tolist() == inner
    assert sorted([*split.out, *split.inner]) == list(range(count))


def test_a_split_needs_something_to_hold_out() -> None:
    with pytest.raises(ValueError, match="at least one picture for validation, got 4"):
        split_domain(4, 0, 0)


# --- folders ------------------------------------------------------------------------------------


def test_an_own_folder_in_domainbeds_order(tmp_path) -> None:
    """Sorted folder by folder, a folder's own pictures first; the splits depend on it."""
    names = ("cat/b.png", "cat/a.png", "cat/Z/a.png", "cat/Z-1/a.png", "dog/x/é.png", "dog/2.JPG")
    write_pictures(tmp_path, {f"{d}/{name}": (8, 8) for d in ("b", "a") for name in names})
    (tmp_path / "README.md").write_text("notes")
    (tmp_path / "a" / "cat" / "._b.png").write_bytes(b"left by another system")
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    opened = open_domains(tmp_path)
    assert opened.name == tmp_path.name
    assert opened.classes == ("cat", "dog")
    assert [domain.name for domain in opened.domains] == ["a", "b"]
    walked = []
    for label in ("cat", "dog"):  # as torchvision's ImageFolder lists a domain
        for root, _, files in sorted(os.walk(tmp_path / "a" / label)):
            walked += [Path(root) / file for file in sorted(files) if file[0] != "."]
    assert list(opened.domains[0].paths) == walked
    assert opened.domains[0].labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert len(opened) == 12
    assert opened.note == ""


def test_published_sets_are_recognised_in_their_folder_and_in_the_one_around(tmp_path) -> None:
    counts = {
        domain: dict(zip(VLCS.classes, numbers, strict=True))
        for domain, numbers in VLCS.class_counts.items()
    }
    inner = empty_files(tmp_path / "data" / "VLCS", counts)
    for folder, name in ((inner, None), (tmp_path / "data", None), (tmp_path, "vlcs")):
        opened = open_domains(folder, name)
        assert (opened.name, opened.root, opened.note) == ("VLCS", inner, "")
        assert opened.version == "as published"
        assert tuple(map(len, opened.domains)) == (1415, 2656, 3282, 3376)
        assert np.bincount(opened.domains[2].labels).tolist() == [20, 932, 1036, 30, 1264]
    (inner / "SUN09" / "bird" / "3.jpg").unlink()
    (inner / "LabelMe" / "dog" / "more.jpg").touch()
    opened = open_domains(inner)
    assert opened.version is None
    assert opened.note == (
        "not VLCS as published: stray: LabelMe/dog (expected 42 pictures, found 43); "
        "missing: SUN09/bird (expected 20 pictures, found 19)"
    )


def test_the_table_of_published_sets_adds_up() -> None:
    totals = {
        "pacs": {9_991},
        "vlcs": {10_729},
        "officehome": {15_588},
        "terraincognita": {24_788, 24_330},
    }
    for key, known in KNOWN_SETS.items():
        assert {sum(counts) for counts in known.versions.values()} == totals[key]
        assert list(known.domains) == sorted(known.domains)
        assert len(known.classes) in (0, known.class_count)
        if known.class_counts:
            sums = tuple(sum(known.class_counts[domain]) for domain in known.domains)
            assert sums == known.versions["as published"]


def test_both_versions_of_terra_incognita(tmp_path) -> None:
    for version, counts in TERRA.versions.items():
        assert TERRA.version_of(counts) == version
        near = (counts[0] - 1, *counts[1:])
        assert TERRA.version_of(near) is None
        assert TERRA.nearest_version(near) == version
    folder = empty_files(tmp_path / "terra_incognita", few(TERRA))
    opened = open_domains(tmp_path)
    assert (opened.name, len(opened)) == ("TerraIncognita", 40)
    assert "location_100 (expected 4,741 pictures, found 10)" in opened.note
    (folder / "location_38" / "dog" / "0.jpg").unlink()
    (folder / "location_38" / "dog").rmdir()
    with pytest.raises(DataError, match=r"missing: location_38/dog \(a class of TerraIncognita\)"):
        open_domains(tmp_path)


def test_office_home_is_known_by_its_number_of_classes(tmp_path) -> None:
    known = KNOWN_SETS["officehome"]
    labels = [f"thing {number}" for number in range(64)]
    empty_files(tmp_path / "office_home", {d: dict.fromkeys(labels, 1) for d in known.domains})
    with pytest.raises(DataError, match=r"missing: classes \(OfficeHome has 65, found 64\)"):
        open_domains(tmp_path)
    empty_files(tmp_path / "office_home", {d: {"thing 64": 1} for d in known.domains})
    assert len(open_domains(tmp_path / "office_home").classes) == 65


def spoil_missing_domain(folder: Path) -> None:
    (folder / "photo").rename(folder.parent / "elsewhere")


def spoil_stray_domain(folder: Path) -> None:
    (folder / "splits" / "dog").mkdir(parents=True)


def spoil_empty_class(folder: Path) -> None:
    (folder / "sketch" / "house" / "0.jpg").unlink()


def spoil_stray_class(folder: Path) -> None:
    (folder / "cartoon" / "zebra").mkdir()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_missing_domain, r"missing: photo \(a domain of PACS\)"),
        (spoil_stray_domain, r"stray: splits \(not a domain of PACS, but would be taken for one\)"),
        (spoil_empty_class, r"missing: sketch/house \(the class folder holds no pictures\)"),
        (spoil_stray_class, r"stray: cartoon/zebra \(not a class of PACS\)"),
    ],
)
def test_what_is_wrong_with_a_published_set_is_said(tmp_path, spoil, message) -> None:
    folder = empty_files(tmp_path / "PACS", few(PACS))
    spoil(folder)
    with pytest.raises(DataError, match=message):
        open_domains(folder)


def test_what_is_wrong_with_an_own_folder_is_said(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist: expected a folder"):
        open_domains(tmp_path / "nowhere")
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match="at least two are needed, found none"):
        open_domains(tmp_path / "bare")
    with pytest.raises(DataError, match="at least two are needed, found day"):
        open_domains(own_set(tmp_path / "single", ("day",)))
    three = own_set(tmp_path / "three", ("day", "dusk", "night"), each=1)
    (three / "dusk" / "cow").mkdir()
    with pytest.raises(DataError, match=r"stray: dusk/cow \(not a class of the other domains\)"):
        open_domains(three)
    (three / "dusk" / "cow").rmdir()
    (three / "night" / "dog").rename(three / "night" / "hound")
    with pytest.raises(DataError, match=r"missing: night/dog .*stray: night/hound"):
        open_domains(three)
    (three / "__MACOSX").mkdir()
    with pytest.raises(DataError, match=r"stray: __MACOSX \(it holds no class folders"):
        open_domains(three)
    imageless = empty_files(tmp_path / "none", {"a": {"cat": 0}, "b": {"cat": 0}})
    with pytest.raises(DataError, match=r"missing: a/cat \(the class folder holds no pictures\)"):
        open_domains(imageless)


def test_which_set_is_meant_can_be_said(tmp_path) -> None:
    empty_files(tmp_path / "PACS", few(PACS))
    empty_files(tmp_path / "VLCS", few(VLCS))
    with pytest.raises(DataError, match=r"more than one set: PACS in .*, VLCS in "):
        open_domains(tmp_path)
    assert open_domains(tmp_path, "PACS").name == "PACS"
    with pytest.raises(DataError, match="no folder of TerraIncognita: expected location_100"):
        open_domains(tmp_path, "TerraIncognita")
    with pytest.raises(ValueError, match=r"`name` must be one of PACS, .*own; got 'PACKS'. Did"):
        open_domains(tmp_path, "PACKS")
    two = empty_files(tmp_path / "mine", {d: {"dog": 1} for d in ("photo", "sketch")})
    with pytest.raises(DataError, match=f"missing: art_painting.*not PACS.*own set: own:{two}"):
        open_domains(two)
    assert open_domains(two, "own").name == "mine"


@pytest.mark.parametrize(
    ("domains", "classes"),
    [
        (("photo", "sketch", "clipart"), ("cat", "dog")),
        (PACS.domains, ("bus", "car", "dog", "person", "tram")),
        (("Art", "Clipart", "Product"), ("cat", "dog")),
        (("location_38", "location_46"), ("day", "night")),
    ],
)
def test_names_of_domains_alone_make_no_published_set(tmp_path, domains, classes) -> None:
    folder = empty_files(tmp_path / "mine", {d: dict.fromkeys(classes, 1) for d in domains})
    for place in (folder, tmp_path):
        opened = open_domains(place)
        assert (opened.name, opened.classes, opened.note) == ("mine", classes, "")
        assert [domain.name for domain in opened.domains] == sorted(domains)


def test_a_published_set_that_lost_much_is_still_recognised(tmp_path) -> None:
    counts = {d: dict.fromkeys(PACS.classes[2:], 1) for d in PACS.domains[:2]}
    folder = empty_files(tmp_path / "lost", counts)
    (folder / "cartoon" / "notes").mkdir()
    kinds = {(p.kind, p.name) for p in survey_folder(folder).faults}
    assert {("missing", name) for name in ("photo", "sketch", "cartoon/dog")} <= kinds
    assert ("stray", "cartoon/notes") in kinds


def test_an_own_set_does_not_pass_for_the_published_one_whose_name_it_has(tmp_path) -> None:
    folder = empty_files(tmp_path / "PACS", few(PACS))
    assert open_domains(folder).note.startswith("not PACS as published: ")
    taken = open_domains(folder, "own")
    assert (taken.name, taken.version, taken.note) == ("own-PACS", None, "")
    other = empty_files(tmp_path / "x" / "office_home", {d: {"a": 1, "b": 1} for d in "pq"})
    assert open_domains(other).name == "own-office_home"


# --- by one word --------------------------------------------------------------------------------


def test_own_data_by_one_word(tmp_path) -> None:
    folder, cache = own_set(tmp_path / "mine", ("photo", "sketch", "clipart")), str(tmp_path / "c")
    for word in (str(folder), f"own:{folder}", f"Own:{folder}"):
        arrays = open_arrays(word, 8, cache)
        assert (arrays.name, arrays.classes) == ("mine", ("cat", "dog"))
    write_pictures(
        tmp_path / "p", {f"{d}/{c}/0.png": (8, 8) for d in PACS.domains for c in PACS.classes}
    )
    assert open_arrays(f"own:{tmp_path / 'p'}", 8, cache).name == "p"
    assert open_arrays(str(tmp_path / "p"), 8, cache).note.startswith("not PACS as published")


@pytest.mark.parametrize(
    ("word", "name", "channels"),
    [
        *((word, "RotatedMNIST", 1) for word in ("rotated-mnist", "rotated_mnist", "RotatedMNIST")),
        *((word, "ColoredMNIST", 2) for word in ("colored-mnist", "Colored_MNIST", "ColoredMNIST")),
    ],
)
def test_digits_by_one_word_in_any_spelling(mnist, word, name, channels) -> None:
    arrays = open_arrays(f"{word}:{mnist[0]}", 8)
    assert (arrays.name, arrays.image_shape[0]) == (name, channels)
    assert PlanOptions(f"{word}:x").plan("erm", ["0"]).backbone == "mnist-gn"


def test_words_that_name_no_data(tmp_path) -> None:
    expected = "one of rotated-mnist:FOLDER, colored-mnist:FOLDER, own:FOLDER; "
    for word, hint in (
        ("rotatd-mnist:x", r"\. Did you mean 'rotated-mnist'\?$"),
        ("own:", r"\.$"),
        ("rotated-mnist", r"\.$"),
        (str(tmp_path / "none"), r"\.$"),
    ):
        with pytest.raises(FileNotFoundError, match=f"{expected}'{word}' does not exist{hint}"):
            open_arrays(word, 8)
    with pytest.raises(FileNotFoundError, match=r"none does not exist: expected a folder or a tar"):
        open_arrays(f"own:{tmp_path / 'none'}", 8)


# --- archives -----------------------------------------------------------------------------------


def picture_bytes(seed: int = 0) -> bytes:
    from driftnorm.images.pictures import jpeg_bytes

    return jpeg_bytes(random_images(1, seed=seed)[0])


def test_an_archive_is_unpacked_once_into_the_cache(tmp_path) -> None:
    names = [f"pets/{d}/{c}/{n}.jpg" for d in "ab" for c in ("cat", "dog") for n in range(2)]
    members = {name: picture_bytes(n) for n, name in enumerate(names)}
    archive = tmp_path / "pets.tar.gz"
    archive.write_bytes(tar_bytes({**members, "pets/evil.sh": b"rm"}))
    opened = open_domains(archive, cache=tmp_path / "cache")
    assert (opened.name, len(opened)) == ("pets", 8)
    assert tmp_path / "cache" in opened.root.parents
    assert not list((tmp_path / "cache").rglob("*.sh"))
    assert open_domains(archive, cache=tmp_path / "cache").root == opened.root
    assert opened.domains[1].paths[3].read_bytes() == members[names[-1]]


@pytest.mark.parametrize("name", ["../a/b/x.jpg", "/a/b/x.jpg", "a/../../x.jpg", "a\\..\\x.jpg"])
def test_an_archive_cannot_write_elsewhere(tmp_path, name) -> None:
    (tmp_path / "bad.tar").write_bytes(tar_bytes({"a/b/ok.jpg": b"1", name: b"2"}))
    with pytest.raises(DataError, match="outside its folder"):
        open_domains(tmp_path / "bad.tar", cache=tmp_path / "cache")
    assert {path.name for path in tmp_path.rglob("*.jpg")} == set()


def test_bad_archives(tmp_path) -> None:
    cases = {
        "text.tar": (b"no archive at all" * 100, "is not a tar archive, or a truncated or damaged"),
        "none.tar": (tar_bytes({"a/b/notes.txt": b"1"}, "w"), "holds no pictures"),
        "bomb.tgz": (tar_bytes({"a/b/c.bmp": bytes(40_000_000)}), "more than 100 times its size"),
        "half.tar": (tar_bytes({"a/b/c.jpg": bytes(9000)}, "w")[:5000], "truncated or damaged"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            open_domains(tmp_path / name, cache=tmp_path / "cache")
    assert not list((tmp_path / "cache" / "unpacked").iterdir()), "nothing is left behind"


# --- checking -----------------------------------------------------------------------------------


def test_check_counts_and_opens_everything(tmp_path) -> None:
    folder = own_set(tmp_path / "pets", each=4)
    sound = check_domains(folder, workers=1)
    assert sound.problems == ()
    assert sound.lines() == [
        f"pets in {folder}",
        "  day: 8 pictures (cat 4, dog 4)",
        "  night: 8 pictures (cat 4, dog 4)",
    ]
    whole = (folder / "day/cat/001.jpg").read_bytes()
    (folder / "day/cat/001.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "day/dog/000.png").write_text("no picture")
    (folder / "night/dog/002.bmp").write_bytes(b"")
    (folder / "night/cat/Thumbs.db").write_text("")
    write_pictures(folder, {"night/loose.png": (8, 8)})
    seen = []
    found = check_domains(folder, workers=2, progress=lambda *state: seen.append(state))
    assert [(p.kind, p.name) for p in found.problems] == [
        ("stray", "night/cat/Thumbs.db"),
        ("stray", "night/loose.png"),
        ("damaged", "day/cat/001.jpg"),
        ("damaged", "day/dog/000.png"),
        ("damaged", "night/dog/002.bmp"),
    ]
    assert found.problems[1].detail == "not in a class folder"
    assert "truncated" in found.problems[2].detail.lower()
    assert seen[0][1:] == (0, 16)
    assert seen[-1][1:] == (16, 16)


def test_check_reports_faults_instead_of_raising(tmp_path) -> None:
    folder = empty_files(tmp_path / "PACS", few(PACS))
    (folder / "photo").rename(tmp_path / "elsewhere")
    (folder / "notes").mkdir()
    kinds = [(p.kind, p.name) for p in check_domains(folder, workers=1).problems]
    assert kinds[:2] == [("missing", "photo"), ("stray", "notes")]
    assert kinds[2] == ("damaged", "art_painting/dog/0.jpg")
    assert len(kinds) == 2 + 21


# --- the cache ----------------------------------------------------------------------------------


def test_the_cache_holds_what_pillow_reads_one_by_one(tmp_path) -> None:
    opened = open_domains(own_set(tmp_path / "pets", each=70))  # several chunks
    seen = []
    arrays = cached_arrays(
        opened, 20, folder=tmp_path / "c", workers=2, progress=lambda *state: seen.append(state)
    )
    assert (arrays.name, arrays.classes, arrays.augmented) == ("pets", ("cat", "dog"), True)
    assert arrays.image_shape == (3, 20, 20)
    assert seen[0] == ("decoding", 0, 280)
    assert seen[-1] == ("decoding", 280, 280)
    for domain, array in zip(opened.domains, arrays.domains, strict=True):
        assert isinstance(array.images, np.memmap)
        assert not array.images.flags.writeable
        assert array.labels.tolist() == domain.labels.tolist()
        for path, pixels in zip(domain.paths, array.images, strict=True):
            with Image.open(path) as picture:
                small = picture.convert("RGB").resize((20, 20), Image.Resampling.BILINEAR)
            assert np.array_equal(pixels, np.asarray(small))


def test_the_cache_is_made_once_and_again_when_something_changed(tmp_path) -> None:
    folder = own_set(tmp_path / "pets")
    built = []

    def arrays(side: int = 8) -> DomainArrays:
        return cached_arrays(
            open_domains(folder),
            side,
            folder=tmp_path / "c",
            workers=1,
            progress=lambda *told: built.append(told) if told[:2] == ("decoding", 0) else None,
        )

    first = arrays()
    assert arrays().content == first.content
    assert len(built) == 1, "the second call decodes nothing"
    assert arrays(9).content == first.content, "the content is the files', not the pixels'"
    (tmp_path / "elsewhere").mkdir()
    folder = folder.rename(tmp_path / "elsewhere" / "pets")
    assert arrays().content == first.content
    assert len(built) == 2, "a folder may be moved"
    changed = folder / "day" / "cat" / "000.png"
    content, state = changed.read_bytes(), changed.stat()
    changed.write_bytes(content)
    os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    again = arrays()
    assert again.content == first.content
    assert np.array_equal(again.domains[0].images, first.domains[0].images)
    assert len(built) == 2, "the same bytes at another time, as of a copied folder, share pixels"
    places = (tmp_path / "c" / "domains").glob("pets-8px-*")
    assert len({(place / PIXELS_FILE).stat().st_ino for place in places}) == 1
    with Image.open(changed) as picture:
        picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(changed)
    second = arrays()
    assert second.content != first.content
    assert len(built) == 3
    # Another picture of the same size and date, as archives may have it, is another picture.
    changed = folder / "day" / "cat" / "000.png"
    state, other = changed.stat(), changed.with_name("other.png")
    other.write_bytes(changed.read_bytes()[:-1] + b"!")
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.rename(changed)
    assert (changed.stat().st_size, changed.stat().st_mtime_ns) == (state[6], state.st_mtime_ns)
    assert arrays().content not in (first.content, second.content)


def test_an_unreadable_picture_stops_the_cache_and_leaves_nothing(tmp_path) -> None:
    folder = own_set(tmp_path / "pets")
    (folder / "night/cat/001.jpg").write_bytes(b"damaged")
    for workers in (1, 2):
        with pytest.raises(DataError, match=r"night.cat.001\.jpg cannot be read as a picture"):
            cached_arrays(open_domains(folder), 8, folder=tmp_path / "c", workers=workers)
        assert not list((tmp_path / "c" / "domains").iterdir())


def test_a_damaged_cache_is_named(tmp_path) -> None:
    opened = open_domains(own_set(tmp_path / "pets"))
    cached_arrays(opened, 8, folder=tmp_path / "c", workers=1)
    (place,) = (tmp_path / "c" / "domains").iterdir()
    description = (place / DESCRIPTION_FILE).read_text()
    assert json.loads(description)["pictures"] == 12
    pixels = (place / PIXELS_FILE).read_bytes()
    np.save(place / PIXELS_FILE, np.zeros((11, 8, 8, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"expected 12 pictures of 8 px, found .*\(11, 8, 8, 3\)"):
        cached_arrays(opened, 8, folder=tmp_path / "c")
    (place / PIXELS_FILE).write_bytes(pixels[:-1])
    with pytest.raises(DataError, match=r"is damaged: .* is truncated: .* Remove it"):
        cached_arrays(opened, 8, folder=tmp_path / "c")
    (place / PIXELS_FILE).write_bytes(pixels)
    (place / DESCRIPTION_FILE).write_text("{}")
    with pytest.raises(DataError, match="is damaged"):
        cached_arrays(opened, 8, folder=tmp_path / "c")
    with pytest.raises(ValueError, match="`side` must be at least 1, got 0"):
        cached_arrays(opened, 0, folder=tmp_path / "c")


KILLED = """
import sys, time
from driftnorm.images.domains.cache import cached_arrays
from driftnorm.images.domains.folder import open_domains

def stop(text, done, total):
    if done > 0:
        print("half-way", flush=True)
        time.sleep(600)

cached_arrays(open_domains(sys.argv[1]), 8, folder=sys.argv[2], workers=1, progress=stop)
"""


def test_a_killed_build_leaves_no_cache_and_the_next_one_succeeds(tmp_path) -> None:
    folder, cache = own_set(tmp_path / "pets", each=40), tmp_path / "c"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, folder, cache], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half-way\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = [path.name for path in (cache / "domains").iterdir()]
    assert left, "the draft that the killed process could not remove"
    assert all(name.startswith(".") for name in left)
    arrays = cached_arrays(open_domains(folder), 8, folder=cache, workers=1)
    assert sum(map(len, arrays.domains)) == 160
    names = [path.name for path in (cache / "domains").iterdir()]
    assert len(names) == 1, "the draft is gone"
    assert names[0].startswith("pets-8px-")


MAKER = """
import sys, time
from pathlib import Path
from driftnorm._internal.cache_folder import made_once

place, mark, other = map(Path, sys.argv[1:])

def make(draft):
    mark.with_suffix(".makes").touch()
    while not other.with_suffix(".waits").exists():
        time.sleep(0.01)
    (draft / "maker").write_text(mark.name)

def report(text, done, total):
    mark.with_suffix(".waits").touch()

made_once(place, make, report)
print((place / "maker").read_text())
"""


def test_of_two_processes_one_makes_the_folder_and_the_other_waits(tmp_path) -> None:
    place, one, two = tmp_path / "cache" / "made", tmp_path / "one", tmp_path / "two"
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKER, place, mark, other], stdout=subprocess.PIPE, text=True
        )
        for mark, other in ((one, two), (two, one))
    ]
    said = [process.communicate(timeout=60)[0].strip() for process in makers]
    assert [process.returncode for process in makers] == [0, 0]
    assert said[0] == said[1], "both got the same folder"
    assert len(list(tmp_path.glob("*.makes"))) == 1
    assert len(list(tmp_path.glob("*.waits"))) == 1
    assert [path.name for path in place.parent.iterdir()] == ["made"]


UNGUARDED = """
import sys
from driftnorm.images.domains.cache import cached_arrays
from driftnorm.images.domains.folder import open_domains

cached_arrays(open_domains(sys.argv[1]), 8, folder=sys.argv[2], workers=2)
"""


def test_a_script_without_a_main_guard_is_told_and_does_not_hang(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    folder = own_set(tmp_path / "pets", each=2)
    done = subprocess.run(
        [sys.executable, script, folder, tmp_path / "c"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert 'under `if __name__ == "__main__":`' in done.stderr
    assert [path.name for path in (tmp_path / "c" / "domains").iterdir()] == []


def test_a_failing_maker_leaves_nothing(tmp_path) -> None:
    def fail(draft: Path) -> None:
        (draft / "part").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(tmp_path / "made", fail, quiet)
    assert not list(tmp_path.iterdir())


def test_where_the_cache_is(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("DRIFTNORM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "driftnorm"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/driftnorm")
    monkeypatch.setenv("DRIFTNORM_CACHE", "/d")
    assert cache_folder() == Path("/d")
    assert cache_folder("here") == Path("here")


# --- digits -------------------------------------------------------------------------------------


@pytest.fixture
def mnist(tmp_path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A tiny MNIST, 50 and 21 images, and both parts one after the other."""
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (71, 28, 28), dtype=np.uint8)
    labels = random.integers(0, 10, 71, dtype=np.uint8)
    for part, rows in (("train", slice(50)), ("t10k", slice(50, None))):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images[rows]))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels[rows]))
    return tmp_path, images, labels


def test_rotated_mnist_one_image_at_a_time(mnist) -> None:
    folder, images, labels = mnist
    made = rotated_mnist(folder, seed=3)
    assert made.image_shape == (1, 28, 28)
    assert (made.augmented, len(made.classes)) == (False, 10)
    assert [domain.name for domain in made.domains] == [str(angle) for angle in ANGLES]
    assert [len(domain) for domain in made.domains] == [12, 12, 12, 12, 12, 11]
    torch.manual_seed(3)  # DomainBed's way: the global generator
    for place, source in enumerate(torch.randperm(71).tolist()):
        domain = made.domains[place % 6]
        picture = Image.fromarray(images[source])
        turned = picture.rotate(ANGLES[place % 6], resample=Image.Resampling.BILINEAR, fillcolor=0)
        assert np.array_equal(domain.images[place // 6, :, :, 0], np.asarray(turned))
        assert domain.labels[place // 6] == labels[source]
    assert rotated_mnist(folder, seed=3).content == made.content
    assert rotated_mnist(folder, seed=4).content != made.content


def test_colored_mnist_one_image_at_a_time(mnist) -> None:
    folder, images, labels = mnist
    made = colored_mnist(folder, seed=5)
    assert made.image_shape == (2, 28, 28)
    assert [domain.name for domain in made.domains] == ["+90%", "+80%", "-90%"]
    torch.manual_seed(5)  # DomainBed's way: the global generator
    order = torch.randperm(71)
    for place, (domain, flips) in enumerate(zip(made.domains, COLOR_FLIPS.values(), strict=True)):
        hand = order[place::3].tolist()
        wrong, recolored = torch.rand(len(hand)), torch.rand(len(hand))
        assert len(domain) == len(hand)
        for number, source in enumerate(hand):
            label = int(labels[source] < 5) ^ int(wrong[number] < 0.25)
            color = label ^ int(recolored[number] < flips)
            assert domain.labels[number] == label
            assert np.array_equal(domain.images[number, :, :, color], images[source])
            assert not domain.images[number, :, :, 1 - color].any()
    with pytest.raises(ValueError, match="`seed` must be at least 0, got -1"):
        colored_mnist(folder, seed=-1)


# --- arrays and batches -------------------------------------------------------------------------


def small_domain(
    name: str, images: Any, labels: Any, classes: tuple[str, ...] = ("x", "y")
) -> ImageSet:
    return ImageSet(name, images, labels, classes, np.arange(len(images)))


def small_arrays() -> DomainArrays:
    """Two domains whose images are filled with their number: 0 to 19, and 100 to 129."""
    domains = []
    for name, start, count in (("a", 0, 20), ("b", 100, 30)):
        images = np.empty((count, 6, 6, 3), dtype=np.uint8)
        images[:] = np.arange(start, start + count)[:, None, None, None]
        images.setflags(write=False)  # as a memory map is
        domains.append(small_domain(name, images, np.arange(count) % 2))
    return DomainArrays("toy", tuple(domains), True, "hash")


def toy_batches(seed: int = 0, augmented: bool = False, side: int | None = None) -> Batches:
    arrays = small_arrays()
    inner = [split.inner for split in arrays.splits(0)]
    return Batches(arrays.domains, inner, 40, seed, augmented=augmented, side=side)


def test_a_batch_is_drawn_with_replacement_from_the_in_split_of_each_domain() -> None:
    arrays, batches = small_arrays(), toy_batches()
    for step in range(5):
        drawn = batches.batch(step)
        assert len(drawn) == 2
        order = random_numbers(0, "order", step)
        for (images, labels), domain, split in zip(
            drawn, arrays.domains, arrays.splits(0), strict=True
        ):
            picks = split.inner[order.integers(0, len(split.inner), 40)]
            assert images.shape == (40, 3, 6, 6)
            assert images.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(
                images[:, 0, 0, 0], torch.from_numpy(domain.images[picks, 0, 0, 0]).float() / 255
            )
            assert labels.tolist() == domain.labels[picks].tolist()
            assert len(set(picks)) < 40, "with replacement"
            assert not set(picks) & set(split.out)


@pytest.mark.parametrize("augmented", [False, True])
def test_batches_are_a_pure_function_of_seed_and_step(augmented) -> None:
    once, again = toy_batches(augmented=augmented), toy_batches(augmented=augmented)
    [again.batch(step) for step in (9, 2)]  # what was asked before does not matter
    for (one, ones), (two, twos) in zip(once.batch(7), again.batch(7), strict=True):
        assert torch.equal(one, two)
        assert torch.equal(ones, twos)
    assert not torch.equal(once.batch(7)[0][0], once.batch(8)[0][0])
    other = toy_batches(seed=1, augmented=augmented).batch(7)
    assert not torch.equal(once.batch(7)[0][0], other[0][0])


def test_augmented_batches_have_another_size_if_asked() -> None:
    images, _ = toy_batches(augmented=True, side=4).batch(0)[1]
    assert images.shape == (40, 3, 4, 4)
    with pytest.raises(ValueError, match="`side` is of augmented images"):
        toy_batches(side=4)


def test_evaluation_goes_through_the_images_in_order_and_unchanged() -> None:
    domain = small_arrays().domains[1]
    positions = np.array([5, 3, 8, 8, 0])
    parts = list(evaluation_batches(domain, positions, 2))
    assert [len(labels) for _, labels in parts] == [2, 2, 1]
    values = torch.cat([images[:, 2, 1, 1] for images, _ in parts])
    assert torch.equal(values, torch.tensor([105, 103, 108, 108, 100]) / 255)
    changed = next(evaluation_batches(domain, positions, 5, np.random.default_rng(2)))[0]
    expected = augment(tensors(domain, positions)[0], np.random.default_rng(2))
    assert torch.equal(changed, expected)


def test_bad_arrays_and_batches_are_refused() -> None:
    arrays = small_arrays()
    images, labels = arrays.domains[0].images, arrays.domains[0].labels
    with pytest.raises(DataError, match=r"`images` must be uint8 of shape \(N, H, W, C\), got flo"):
        small_domain("a", images.astype(np.float32), labels)
    with pytest.raises(DataError, match="`labels` must be int64 with one entry for each of the 20"):
        small_domain("a", images, labels[:-1])
    other = small_domain("b", images[:, :4], labels)
    with pytest.raises(DataError, match="must agree in shape"):
        DomainArrays("toy", (arrays.domains[0], other), True, "")
    with pytest.raises(DataError, match="a: labels must be from 0 to 0, got 0 to 1"):
        small_domain("a", images, labels, ("x",))
    others = small_domain("b", images, labels, ("x", "z"))
    with pytest.raises(DataError, match="must have the same classes"):
        DomainArrays("toy", (arrays.domains[0], others), True, "")
    with pytest.raises(DataError, match="domain a holds no images"):
        DomainArrays("toy", (small_domain("a", images[:0], labels[:0]),), True, "")
    with pytest.raises(ValueError, match="toy has the domains a, b; got 'c'"):
        arrays.index("c")
    assert arrays.index("b") == 1
    whole = [np.arange(20), np.arange(30)]
    with pytest.raises(ValueError, match="the same length, at least 1, got 2 and 1"):
        Batches(arrays.domains, whole[:1], 4, 0, augmented=False)
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        Batches(arrays.domains, whole, 0, 0, augmented=False)
    with pytest.raises(ValueError, match=r"`positions` of a must be .* from 0 to 19"):
        Batches(arrays.domains, whole[::-1], 4, 0, augmented=False)
    with pytest.raises(ValueError, match="`seed` must be"):
        Batches(arrays.domains, whole, 4, -1, augmented=False)


# --- the real thing -----------------------------------------------------------------------------


def test_pacs_as_shared(tmp_path) -> None:
    shared = os.environ.get("DRIFTNORM_SHARED")
    if not shared:
        pytest.skip("DRIFTNORM_SHARED does not name the shared folder")
    opened = open_domains(Path(shared) / "data" / "pacs-160.tar", "PACS", cache=tmp_path)
    assert (opened.version, opened.note) == ("as published", "")
    for domain, counts in PACS.class_counts.items():
        (own,) = (each for each in opened.domains if each.name == domain)
        assert tuple(np.bincount(own.labels)) == counts
