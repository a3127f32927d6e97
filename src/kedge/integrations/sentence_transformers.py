"""sentence-transformers: a translating module, so that the new model and the map form one `SentenceTransformer`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from kedge.errors import InputError
from kedge.extras import needing, reason_of
from kedge.integrations.translation import Documents, require_documents
from kedge.models.maps.linear import LinearMap
from kedge.models.translator import Translator
from kedge.runs.translators import Kind, Scale, load_both_translators, load_translator

with needing(
    "kedge.integrations.sentence_transformers needs", "sentence_transformers", install="kedge[sentence-transformers]"
):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Module, Router

_TINY = torch.finfo(torch.float32).tiny


class TranslationModule(Module):
    """Translates sentence embeddings (k, ds) to (k, dt) of the old index, as last module of a `SentenceTransformer`.

    It does what `Translator` does, on the device of the model, and is saved with the model. Since the class is part of
    kedge, such a model is loaded by `SentenceTransformer(FOLDER, trust_remote_code=True)`.

    Parameters
    ----------
    source_dim, target_dim : int
        Dimensions ds and dt. Use `from_run` for a module that translates; a new one maps all vectors to zero.
    prefix_of : int, optional
        If the ds dimensions are the first of more, how many these are; vectors of that length are shortened.
    """

    config_keys: list[str] = ["source_dim", "target_dim", "prefix_of"]  # noqa: RUF012

    matrix: Tensor
    source_center: Tensor
    target_center: Tensor
    length: Tensor

    def __init__(self, source_dim: int, target_dim: int, prefix_of: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.source_dim, self.target_dim, self.prefix_of = source_dim, target_dim, prefix_of
        shapes = {
            "matrix": (source_dim, target_dim),
            "source_center": (source_dim,),
            "target_center": (target_dim,),
            "length": (1,),
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))

    @classmethod
    def from_run(cls, run: str | Path, *, back: bool = False, scale: Scale = "unit", kind: Kind = "text") -> Self:
        """Load the translation of a run folder or a file of `kedge export --to numpy`; with `back`, from Y to X.

        With `kind="query"` it is that of queries, if the discovery was given some.
        """
        return cls.from_translator(load_translator(run, back=back, scale=scale, kind=kind))

    @classmethod
    def from_translator(cls, translator: Translator) -> Self:
        """Make a module from a translator that consists of one linear map."""
        step = translator.steps[0]
        if len(translator.steps) != 1 or not isinstance(step.map, LinearMap):
            raise InputError("only one linear map can be a module; export to onnx, or use kedge.load_translator")
        module = cls(*translator.dims, translator.prefix_of)
        module.matrix.copy_(torch.as_tensor(step.map.matrix))
        module.source_center.copy_(torch.as_tensor(step.source.center))
        module.target_center.copy_(torch.as_tensor(step.target.center))
        module.length.fill_(translator.length)
        return module

    def equals(self, other: TranslationModule) -> bool:
        """Whether another module translates in the same way."""
        return all(torch.equal(buffer, other.get_buffer(name)) for name, buffer in self.named_buffers())

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The features, with `sentence_embedding` (k, ds) translated to (k, dt)."""
        given = features["sentence_embedding"]
        rows = given.float()
        if rows.shape[-1] == self.prefix_of:
            rows = rows[..., : self.source_dim]
        if rows.shape[-1] != self.source_dim:
            raise InputError(
                f"the model gives vectors of {rows.shape[-1]} dimensions, but this module translates from "
                f"{self.source_dim}; put it after the model that X of the run was encoded with"
            )
        matrix, source, target = self.matrix.float(), self.source_center.float(), self.target_center.float()
        directions = _unit(_unit(_unit(rows) - source) @ matrix)
        along = directions @ target
        left_over = (1 - target @ target).clamp(min=0)
        reach = torch.sqrt(along * along + left_over) - along
        translated = (target + reach[..., None] * directions) * self.length.float()
        return features | {"sentence_embedding": translated.to(given.dtype)}

    def get_embedding_dimension(self) -> int:
        """The dimensions of the output."""
        return self.target_dim

    get_sentence_embedding_dimension = get_embedding_dimension

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write the module into a folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> Self:  # type: ignore[override]
        """Read the module back."""
        names = ("token", "cache_folder", "revision", "local_files_only")
        where = {"subfolder": subfolder} | {name: options[name] for name in names if name in options}
        module = cls(**cls.load_config(model_name_or_path, **where))
        cls.load_torch_weights(model_name_or_path, model=module, **where)
        return module


def translated_model(
    model: SentenceTransformer,
    run: str | Path | TranslationModule,
    *,
    documents: Documents = "translate",
    scale: Scale = "unit",
) -> SentenceTransformer:
    """The new model followed by the map, as one `SentenceTransformer` whose vectors fit the old index.

    If the run has a translation of its own for queries, `encode_query` uses it, and all else that of texts.

    Parameters
    ----------
    model : SentenceTransformer
        The new model, that of X; the returned model shares its modules.
    run : str, Path or TranslationModule
        Run folder, a file written by `kedge export --to numpy`, or a module, which already has a scale.
    documents : {"translate", "native"}
        With "translate", `encode`, `encode_query` and `encode_document` all translate. With "native", a `Router` leaves
        documents as the new model encodes them, and only `encode_query` translates; then a file of queries will do.
    scale : {"unit", "raw"}
        Length of translated vectors: 1, or the mean length of the old index's vectors, for an index by distance.
    """
    require_documents(documents)
    if isinstance(run, TranslationModule):
        of_texts = of_queries = run
    else:
        both = load_both_translators(run, scale=scale, only_queries=documents == "native")
        of_texts, of_queries = map(TranslationModule.from_translator, both)
    own: list[Any] = list(model)
    modules: list[Any] = [*own, of_texts]
    if documents == "native":
        modules = [Router.for_query_document([*own, of_queries], own)]
    elif not of_texts.equals(of_queries):
        modules = [Router.for_query_document([*own, of_queries], modules)]
    prompts: Any = model.prompts
    return SentenceTransformer(
        modules=modules, device=str(model.device), prompts=prompts, default_prompt_name=model.default_prompt_name
    )


def open_model(name: str) -> SentenceTransformer:
    """Load a model by name or folder; raises `InputError` if that fails."""
    try:
        return SentenceTransformer(name)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot be loaded as a SentenceTransformer ({reason_of(error)})") from error


def _unit(rows: Tensor) -> Tensor:
    """Rows scaled to unit norm; a zero row stays zero."""
    return rows / rows.norm(dim=-1, keepdim=True).clamp(min=_TINY)
