"""Recipes as data, every method's builder, composition, and what a mistyped option is told."""

import importlib
import inspect
import pkgutil
from dataclasses import replace
from functools import partial

import pytest
import torch

from driftnorm import methods as recipes
from driftnorm.methods import METHODS, Method, build, nearest, options_of, register
from driftnorm.methods.spec import parse_method
from driftnorm.parts.answers import T3A, PriorCorrection, RunningCentroids
from driftnorm.parts.layers import First
from driftnorm.parts.losses import Entropy, InformationMaximization, PseudoLabel
from driftnorm.parts.statistics import Batch, Mixture, Prior, Running, Source
from driftnorm.parts.updates import OPTIMIZERS, Anchor, Cap, Descent, Leash, with_rate
from driftnorm.recipe import Optimising, Recipe, learning_rate

OPTIMISING = [name for name in METHODS if METHODS[name].recipe.needs_backward]
FEATURE_SIDE = [name for name in METHODS if not METHODS[name].recipe.answer]

# What each paper does, by default: the fields of section 7's readings. A method that is not in the
# paper's comparison needs no line here; what follows from the registry is tested for it as well.
DEFAULTS = {
    "source": Recipe(),
    "bn": Recipe(statistics=Batch(), gradient="detached"),
    "bn-prior": Recipe(statistics=Prior(16), gradient="detached"),
    "alpha-bn": Recipe(statistics=Mixture(0.5, Batch()), gradient="detached"),
    "tent": Recipe(statistics=Batch(), trainable="affine", loss=Entropy(), update=(Descent(),)),
    "gprebn": Recipe(statistics=Running(), trainable="affine", loss=Entropy(), update=(Descent(),)),
    "t3a": Recipe(answer=(T3A(20),)),
    "rt3a": Recipe(answer=(RunningCentroids("normalized", "linear"),)),
    "pl": Recipe(
        gradient="detached",
        trainable="all",
        loss=PseudoLabel(0.9),
        update=(Descent(lr=5e-5),),
    ),
    "pl-c": Recipe(
        gradient="detached",
        trainable="classifier",
        loss=PseudoLabel(0.9),
        update=(Descent(lr=5e-5),),
    ),
    "shot": Recipe(
        gradient="detached",
        trainable="features",
        loss=InformationMaximization(0.1, 0.9),
        update=(Descent(lr=5e-5),),
    ),
    "shot-im": Recipe(
        gradient="detached",
        trainable="features",
        loss=InformationMaximization(0.0, 0.9),
        update=(Descent(lr=5e-5),),
    ),
}
every_method = pytest.mark.parametrize("name", METHODS)
every_optimising = pytest.mark.parametrize("name", OPTIMISING)


def message(build_it, kind=ValueError):
    with pytest.raises(kind) as error:
        build_it()
    return str(error.value)


# ---------------------------------------------------------------- every method


def test_the_registry_holds_the_methods_of_the_issue():
    assert set(DEFAULTS) <= set(METHODS)


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_the_papers(name):
    assert build(name) == DEFAULTS[name]
    assert METHODS[name].recipe == DEFAULTS[name]
    # Common readings: one Adam step, a batch counts once, answered before the step.
    recipe = build(name)
    assert (recipe.steps, recipe.predict, recipe.count) == (1, "before", "batch")
    assert all(part == Descent("adam", lr=rate(recipe)) for part in recipe.update)


def test_the_optimising_methods_are_these():
    found = [name for name in DEFAULTS if build(name).needs_backward]
    assert found == ["tent", "gprebn", "pl", "pl-c", "shot", "shot-im"]


@every_method
def test_every_method_tells_its_facts(name):
    method = METHODS[name]
    assert method.name == name
    assert all((method.paper, method.summary, method.helps, method.hurts))
    assert "\n" not in method.summary


def test_every_file_has_its_formula_at_its_head_and_says_what_it_is_for_once():
    modules = [
        importlib.import_module(f"driftnorm.methods.{found.name}")
        for found in pkgutil.iter_modules(recipes.__path__)
    ]
    described = [module for module in modules if hasattr(module, "METHOD")]
    assert {module.METHOD.name for module in described} == set(METHODS)
    for module in described:
        head = " ".join(module.__doc__.split())
        assert "Formula:" in head
        assert "hurts" not in head, (
            "what a method is for is said by `helps` and `hurts` of its METHOD"
        )


@every_method
def test_options_are_the_builders_keywords(name):
    build = METHODS[name].build
    parameters = inspect.signature(build).parameters
    own = [p for p in parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    shared = list(Optimising.__annotations__) if "optimising" in parameters else []
    assert len(own) + bool(shared) == len(parameters)
    assert list(options_of(name)) == [*(p.name for p in own), *shared]
    assert bool(shared) == METHODS[name].recipe.needs_backward
    documented = inspect.unwrap(getattr(build, "func", build)).__doc__
    assert all(f"{p.name}:" in documented for p in own)
    assert all(f"{option}:" in Optimising.__doc__ for option in shared)


def test_a_builder_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="unexpected option `answer`"):
        METHODS["tent"].build(answer=None)


# ---------------------------------------------------------------- options do what they say


@pytest.mark.parametrize(
    ("name", "options", "field", "expected"),
    [
        ("bn", {"running": True}, "statistics", Running()),
        ("bn", {"running": True, "momentum": 0.1}, "statistics", Running(momentum=0.1)),
        ("bn", {"only": First(0.5)}, "only", First(0.5)),
        ("bn-prior", {"strength": 256}, "statistics", Prior(256)),
        ("bn-prior", {"unbiased": True}, "statistics", Prior(16, unbiased=True)),
        ("bn-prior", {"only": "layer1.*"}, "only", "layer1.*"),
        ("alpha-bn", {"target_weight": 0.9}, "statistics", Mixture(0.9, Batch())),
        ("alpha-bn", {"unbiased": True}, "statistics", Mixture(0.5, Batch(unbiased=True))),
        ("alpha-bn", {"only": ("a", "b")}, "only", ("a", "b")),
        ("tent", {"statistics": "source"}, "statistics", Source()),
        ("tent", {"statistics": Running()}, "statistics", Running()),
        ("tent", {"gradient": "detached"}, "gradient", "detached"),
        ("tent", {"only": First(0.5)}, "only", First(0.5)),
        ("gprebn", {"theta": 0.3}, "statistics", Mixture(0.3, Running())),
        ("gprebn", {"theta": 0}, "statistics", Mixture(0, Running())),
        ("gprebn", {"momentum": 0.1}, "statistics", Running(momentum=0.1)),
        (
            "gprebn",
            {"theta": 0.3, "momentum": 0.1},
            "statistics",
            Mixture(0.3, Running(momentum=0.1)),
        ),
        ("gprebn", {"statistics": "running"}, "statistics", Running()),
        ("gprebn", {"statistics": "source"}, "statistics", Source()),
        ("gprebn", {"statistics": "batch"}, "statistics", Batch()),
        ("gprebn", {"statistics": "batch", "theta": 0.4}, "statistics", Mixture(0.4, Batch())),
        ("gprebn", {"statistics": Prior(4)}, "statistics", Prior(4)),
        ("gprebn", {"gradient": "detached"}, "gradient", "detached"),
        ("gprebn", {"count": "step"}, "count", "step"),
        ("gprebn", {"only": "*bn1"}, "only", "*bn1"),
        ("t3a", {"supports": -1}, "answer", (T3A(-1),)),
        ("rt3a", {"reading": "literal"}, "answer", (RunningCentroids("literal"),)),
        ("rt3a", {"labels": "centroids"}, "answer", (RunningCentroids(labels="centroids"),)),
        ("pl", {"threshold": 0.5}, "loss", PseudoLabel(0.5)),
        ("pl", {"trainable": "classifier"}, "trainable", "classifier"),
        ("pl-c", {"threshold": 0.5}, "loss", PseudoLabel(0.5)),
        ("shot", {"pseudo_label": 0.3}, "loss", InformationMaximization(0.3, 0.9)),
        ("shot", {"threshold": 0.8}, "loss", InformationMaximization(0.1, 0.8)),
    ],
)
def test_an_option_changes_its_field_and_no_other(name, options, field, expected):
    assert build(name, options) == replace(DEFAULTS[name], **{field: expected})


@every_optimising
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lr", 0.01),
        ("lr", 0.0),
        ("weight_decay", 1e-4),
        ("steps", 3),
        ("optimizer", "sgd"),
        ("predict", "after"),
    ],
)
def test_every_optimising_method_takes_the_common_options(name, option, value):
    assert build(name, {option: value}) == changed(build(name), option, value)


def changed(recipe, option, value):
    """The recipe with one common option changed, wherever it belongs."""
    if option in ("steps", "predict"):
        return replace(recipe, **{option: value})
    return replace(recipe, update=with_rate(recipe.update, **{option: value}))


def rate(recipe):
    """The learning rate of a recipe's optimiser."""
    return next(part.lr for part in recipe.parts if isinstance(part, Descent))


@every_optimising
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"cap": 0.01}, (Cap(0.01),)),
        ({"leash": 0.2, "cap": 0.01}, (Cap(0.01), Leash(0.2))),
        ({"anchor": 0.1}, (Anchor(0.1),)),
    ],
)
def test_every_optimising_method_can_be_bounded(name, options, parts):
    assert build(name, options).update == (*build(name).update, *parts)


def test_tent_is_gprebn_with_batch_statistics():
    assert build("gprebn", {"statistics": "batch"}) == build("tent")


# ---------------------------------------------------------------- learning rate


@every_optimising
def test_rho_times_the_source_rate(name):
    recipe = build(name, {"rho": 10, "source_lr": 5e-5})
    assert rate(recipe) == pytest.approx(5e-4)
    assert changed(recipe, "lr", rate(build(name))) == build(name)


@every_optimising
@pytest.mark.parametrize("given", [{"rho": 10}, {"source_lr": 1e-3}])
def test_rho_and_source_lr_need_each_other(name, given):
    text = message(lambda: build(name, given))
    assert "`rho`" in text
    assert "`source_lr`" in text


@every_optimising
@pytest.mark.parametrize("given", [{"rho": 10, "source_lr": 1e-3}, {"rho": 1}, {"source_lr": 1}])
def test_lr_excludes_rho(name, given):
    assert "either `lr`, or `rho`" in message(lambda: build(name, {"lr": 1e-3, **given}))


def test_learning_rate_prefers_what_is_given():
    assert learning_rate(None, None, None) == 1e-3
    assert learning_rate(None, None, None, default=5e-5) == 5e-5
    assert learning_rate(0.0, None, None, default=5e-5) == 0.0
    assert learning_rate(None, 0.1, 1e-2, default=5e-5) == pytest.approx(1e-3)


# ---------------------------------------------------------------- refusals


@every_optimising
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lr", -1e-3),
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("weight_decay", -1.0),
        ("weight_decay", float("nan")),
        ("weight_decay", float("inf")),
        ("steps", 0),
        ("steps", 1.5),
        ("optimizer", "rmsprop"),
        ("predict", "during"),
    ],
)
def test_wrong_common_options_are_named(name, option, value):
    text = message(lambda: build(name, {option: value}))
    assert f"`{option}`" in text
    assert repr(value) in text


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("bn", {"running": True, "momentum": 2}, "momentum"),
        ("bn-prior", {"strength": -1}, "strength"),
        ("tent", {"gradient": "kept"}, "gradient"),
        ("tent", {"statistics": "running"}, "statistics"),
        ("tent", {"statistics": 3}, "statistics"),
        ("gprebn", {"theta": 1.5}, "theta"),
        ("gprebn", {"momentum": 0.0}, "momentum"),
        ("gprebn", {"gradient": "kept"}, "gradient"),
        ("gprebn", {"statistics": "target"}, "statistics"),
        ("gprebn", {"statistics": 3}, "statistics"),
        ("gprebn", {"count": "never"}, "count"),
        ("t3a", {"supports": 0}, "supports"),
        ("rt3a", {"reading": "free"}, "reading"),
        ("rt3a", {"labels": "true"}, "labels"),
        ("pl", {"threshold": 1.0}, "threshold"),
        ("pl", {"trainable": "some"}, "trainable"),
        ("pl", {"trainable": "none"}, "trainable"),
        ("pl-c", {"threshold": -0.1}, "threshold"),
        ("shot", {"pseudo_label": -1}, "pseudo_label"),
        ("shot-im", {"threshold": 1.0}, "threshold"),
    ],
)
def test_wrong_options_are_named(name, options, named):
    with pytest.raises((ValueError, TypeError), match=f"`{named}[`=]"):
        build(name, options)


def test_alpha_bn_names_its_own_argument():
    assert "`target_weight`" in message(lambda: build("alpha-bn", {"target_weight": 1.5}))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bn", {"momentum": 0.1}),
        ("gprebn", {"momentum": 0.1, "statistics": "batch"}),
        ("gprebn", {"momentum": 0.1, "statistics": "source"}),
        ("gprebn", {"momentum": 0.1, "statistics": Running()}),
    ],
)
def test_a_momentum_without_effect_is_refused(name, options):
    assert "`momentum`" in message(lambda: build(name, options))


# ---------------------------------------------------------------- names and composition


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gpreb", "gprebn"),
        ("GpreBN", "gprebn"),
        ("tnet", "tent"),
        ("TENT", "tent"),
        ("T3A", "t3a"),
        ("rT3A", "rt3a"),
        ("bn_prior", "bn-prior"),
        ("alphabn", "alpha-bn"),
        ("shot_im", "shot-im"),
        ("plc", "pl-c"),
        ("gprebn+rt3", "rt3a"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(typed, meant):
    for ask in (build, options_of):
        text = message(partial(ask, typed))
        assert f"Did you mean {meant!r}?" in text
        assert all(name in text for name in METHODS)


def test_a_name_like_no_other_gets_the_list_only():
    text = message(lambda: build("zzzzzz"))
    assert "Did you mean" not in text
    assert "gprebn" in text
    assert nearest("zzzzzz", METHODS) == ""


@pytest.mark.parametrize(
    ("name", "typed", "meant"),
    [
        ("gprebn", "tetha", "theta"),
        ("rt3a", "readng", "reading"),
        ("gprebn+rt3a", "readng", "reading"),
        ("gprebn+rt3a", "tetha", "theta"),
        ("alpha-bn", "source_weight", "target_weight"),
    ],
)
def test_an_unknown_option_suggests_the_nearest_and_lists_all(name, typed, meant):
    text = message(lambda: build(name, {typed: 1}), TypeError)
    assert f"`{typed}`" in text
    assert f"Did you mean {meant!r}?" in text
    assert all(option in text for option in options_of(name))


def test_a_method_without_options_says_so():
    assert options_of("source") == ()
    assert "It takes: none" in message(lambda: build("source", {"lr": 1}), TypeError)


@pytest.mark.parametrize("feature_side", FEATURE_SIDE)
@pytest.mark.parametrize("head_side", ["t3a", "rt3a"])
def test_any_feature_side_joins_any_classifier_side(feature_side, head_side):
    expected = replace(build(feature_side), answer=build(head_side).answer)
    assert build(f"{feature_side}+{head_side}") == expected
    assert build(f"{head_side}+{feature_side}") == expected


def test_a_composition_shares_out_its_options():
    recipe = build("gprebn+rt3a", {"theta": 0.5, "reading": "literal", "steps": 3, "lr": 0.1})
    expected = build("gprebn", {"theta": 0.5, "steps": 3, "lr": 0.1})
    assert recipe == replace(expected, answer=(RunningCentroids("literal"),))
    assert options_of("gprebn+rt3a") == (*options_of("gprebn"), *options_of("rt3a"))


@pytest.mark.parametrize("name", ["gprebn+tent", "t3a+rt3a", "gprebn+tent+rt3a", "bn+t3a+rt3a"])
def test_other_compositions_are_refused(name):
    assert "cannot be joined" in message(lambda: build(name))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("prior+t3a", "put T3A first"),
        ("lame+rt3a", "put RunningCentroids first"),
        ("lame+cotta", "put By first"),
        ("prior+steady", "put ThetaChoice first"),
        ("cotta+rt3a", "choose one"),
        ("steady+t3a", "choose one"),
        ("t3a+rt3a", "choose one"),
        ("eata@lame", "join it with '+'"),
        ("gprebn@t3a", "join it with '+'"),
        ("steady@bn", "chooses theta"),
        ("tent+eata", "normalise"),
        ("pl+shot", "both"),
        ("lame+lame", "acts in two places"),
    ],
)
def test_parts_without_a_meaning_together_are_refused_in_one_line(name, why):
    text = message(lambda: build(name))
    assert text.startswith(f"{name!r} cannot be joined: ")
    assert why in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "name", ["t3a+prior", "rotta+t3a", "t3a+rotta", "steady+lame", "cotta+prior", "eata@source"]
)
def test_an_answer_may_go_on_from_another(name):
    build(name)


@pytest.mark.parametrize("name", ["tent", "eta", "eata", "sar", "rdumb", "pl", "shot"])
def test_theta_without_labels_goes_with_the_statistics_of_another(name):
    auto = build("bn", {"theta": "auto"})
    recipe = parse_method(f"{name}@bn:theta=auto").recipe
    assert recipe.statistics == auto.statistics
    assert recipe.answer == auto.answer  # and is not silently left out
    assert recipe.cost.forwards == build(name).cost.forwards + 3
    assert parse_method("gprebn@bn:theta=auto").recipe.answer == auto.answer  # once


def test_theta_without_labels_is_refused_where_another_part_answers():
    assert "choose one" in message(lambda: build("cotta@bn", {"theta": "auto"}))


# Of statistics: in `a@b` those of `b` count, whoever gets the option.
NORMALISING = {"statistics", "gradient", "theta", "momentum", "only"}
ANSWERING = {"margin"}  # of steady; `@steady` takes its statistics alone


@every_optimising
def test_no_option_means_one_thing_in_a_method_and_another_in_its_statistics(name):
    for other in {"bn", "bn-prior", "bn-window", "steady", "alpha-bn", "gprebn"} - {name}:
        shared = {*options_of(name)} & {*options_of(other)} - {*Optimising.__annotations__}
        assert shared <= NORMALISING | ANSWERING


@pytest.mark.parametrize(
    ("name", "options", "given"),
    [
        ("sar", {"floor": 2}, "'sar' with floor=2"),
        ("rdumb", {"every": 0}, "'rdumb' with every=0"),
        ("cotta", {"restore": 2}, "'cotta' with restore=2"),
        ("tent", {"cap": -1}, "'tent' with cap=-1"),
        ("eata@gprebn", {"fisher": -1}, "'eata' with fisher=-1"),
    ],
)
def test_an_option_that_a_part_calls_otherwise_is_named(name, options, given):
    assert message(lambda: build(name, options)).startswith(given)


@pytest.mark.parametrize("value", ["maybe", "False", 1, None])
def test_a_switch_takes_true_or_false(value):
    text = message(lambda: build("prior", {"multiply": value}), TypeError)
    assert "`multiply` must be True or False" in text


@pytest.mark.parametrize("word", ["true", "True"])
def test_switches_on_the_command_line(word):
    assert parse_method(f"prior:multiply={word}").recipe.answer == (PriorCorrection(True),)
    off = word.replace("rue", "alse").replace("t", "f").replace("T", "F")
    assert parse_method(f"prior:multiply={off}").recipe.answer == (PriorCorrection(False),)


def test_options_are_not_consumed():
    options = {"theta": 0.5}
    build("gprebn", options)
    assert options == {"theta": 0.5}


def test_a_registered_method_is_known_and_composes(monkeypatch):
    monkeypatch.setattr(recipes, "METHODS", dict(METHODS))

    def mine(*, strength: float = 2.0) -> Recipe:
        return Recipe(statistics=Prior(strength), gradient="detached")

    facts = {"paper": "-", "summary": "mine", "helps": "me", "hurts": "others"}
    method = register(Method(name="mine", build=mine, **facts))
    assert method.options == ("strength",)
    assert build("mine", {"strength": 5}).statistics == Prior(5)
    assert build("mine+t3a").answer == (T3A(),)
    assert "Did you mean 'mine'?" in message(lambda: build("mien"))
    assert "taken" in message(lambda: register(replace(method, name="gprebn")))
    assert "`name`" in message(lambda: register(replace(method, name="mine+yours")))
    register(replace(method, name="nothing", build=lambda: None))
    assert "'nothing': `build` must return a Recipe" in message(lambda: build("nothing"), TypeError)


# ---------------------------------------------------------------- the recipe itself


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"loss": Entropy()}, "trainable"),
        ({"trainable": "affine"}, "loss"),
        ({"trainable": "some"}, "trainable"),
        ({"gradient": "kept"}, "gradient"),
        ({"statistics": "batch"}, "statistics"),
        ({"answer": "t3a"}, "answer"),
        ({"per_layer": {"layer1.*": Batch()}}, "per_layer"),
    ],
)
def test_a_senseless_recipe_is_refused(fields, named):
    with pytest.raises((ValueError, TypeError), match=f"`{named}`"):
        Recipe(**fields)


FACTS = {
    # name: backward, batch norm, classifier, order, batch
    "source": (False, False, False, False, False),
    "bn": (False, True, False, False, True),
    "bn-prior": (False, True, False, False, True),
    "alpha-bn": (False, True, False, False, True),
    "tent": (True, True, False, True, True),
    "gprebn": (True, True, False, True, True),
    "t3a": (False, False, True, True, True),
    "rt3a": (False, False, True, True, True),
    "pl": (True, False, False, True, False),
    "pl-c": (True, False, True, True, False),
    "shot": (True, False, True, True, False),
    "shot-im": (True, False, True, True, False),
    "gprebn+rt3a": (True, True, True, True, True),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_follow_from_the_fields(name):
    recipe = build(name)
    assert (
        recipe.needs_backward,
        recipe.needs_batch_norm,
        recipe.needs_classifier,
        recipe.order_dependent,
        recipe.batch_dependent,
    ) == FACTS[name]


def test_facts_of_single_fields():
    assert build("bn", {"running": True}).order_dependent
    assert Recipe(per_layer=(("bn1", Running()),)).order_dependent
    assert Recipe(per_layer=(("bn1", Batch()),)).needs_batch_norm
    assert not build("bn").needs_source_statistics
    assert not build("gprebn").needs_source_statistics
    assert build("gprebn", {"theta": 0.5}).needs_source_statistics
    assert Recipe(statistics=Batch(), per_layer=(("a", Prior()),)).needs_source_statistics
    mixed = Recipe(statistics=Batch(), per_layer=(("a", Prior()), ("b", Source())))
    assert mixed.all_statistics == (Batch(), Prior(), Source())


@pytest.mark.parametrize("name", ["pl", "pl-c", "shot", "shot-im"])
@pytest.mark.parametrize("options", [{"steps": 2}, {"predict": "after"}])
def test_an_answer_after_a_step_depends_on_the_whole_batch(name, options):
    assert build(name, options).batch_dependent


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        (Recipe(), ""),
        (build("t3a"), "answer=(T3A(),)"),
        (build("t3a", {"supports": -1}), "answer=(T3A(supports=-1),)"),
        (build("bn", {"only": First(0.5)}), "only=First(fraction=0.5)"),
        (build("gprebn", {"theta": 0.5}), "statistics=Mixture(theta=0.5, of=Running())"),
        (
            build("gprebn"),
            "update=(Descent(optimizer='adam', lr=0.001),), steps=1, predict='before'",
        ),
        (build("gprebn+rt3a"), "answer=(RunningCentroids(),)"),
        (build("tent", {"optimizer": OPTIMIZERS["sgd"]}), "optimizer=<lambda>"),
    ],
)
def test_settings_in_one_line(recipe, text):
    assert text in recipe.settings()
    assert ("lr=" in recipe.settings()) == recipe.needs_backward
    assert "\n" not in recipe.settings()


def test_optimisers_are_set_as_published():
    parameter = torch.nn.Parameter(torch.zeros(1))
    adam, sgd, adamw = (
        OPTIMIZERS[name]([parameter], 0.1, 0.2) for name in ("adam", "sgd", "adamw")
    )
    assert type(adam) is torch.optim.Adam
    assert adam.defaults["betas"] == (0.9, 0.999)
    assert type(adamw) is torch.optim.AdamW
    assert type(sgd) is torch.optim.SGD
    sgd_settings = [sgd.defaults[name] for name in ("momentum", "dampening", "nesterov")]
    assert sgd_settings == [0.9, 0, True]
    for optimizer in (adam, sgd, adamw):
        assert optimizer.defaults["lr"] == 0.1
        assert optimizer.defaults["weight_decay"] == 0.2
