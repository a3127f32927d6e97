"""A few fixed texts with their vectors, kept to be encoded again later: is it still the same model?

A canary is an ordinary file of vectors with the texts as keys, so anything that reads vectors can read it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kedge.errors import InputError
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Embeddings
from kedge.tasks.watching.drift_verdict import MIN_COMMON, Drift, drift

CANARY_TEXTS: tuple[str, ...] = (
    "A cat sleeps on the warm roof of a parked car.",
    "The central bank raised its interest rate by a quarter of a percent.",
    "How do I reset the password of my account?",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "def add(a, b):\n    return a + b",
    "She played the violin concerto without a single mistake.",
    "Bread needs flour, water, salt, yeast and patience.",
    "The defendant appealed against the verdict of the lower court.",
    "Heavy rain is expected in the north until Thursday evening.",
    "Take two tablets a day with plenty of water after a meal.",
    "The bridge was closed for repairs after the earthquake.",
    "Quarterly revenue fell short of what analysts had predicted.",
    "Le chat dort sur le toit de la voiture.",
    "Der Zug nach Hamburg hat zwanzig Minuten Verspätung.",
    "¿Dónde está la estación de autobuses más cercana?",
    "今日はとても良い天気ですね。",
    "SELECT name, price FROM products WHERE price > 10 ORDER BY name;",
    "The goalkeeper saved a penalty in the last minute of the match.",
    "Black holes bend light so strongly that none of it escapes.",
    "I would like to return these shoes, they are too small.",
    "The novel tells the story of three sisters in a fishing village.",
    "Install the package, then restart the server to apply the changes.",
    "Water boils at a lower temperature on a high mountain.",
    "The museum shows paintings of the seventeenth century.",
    "An unexpected error occurred while reading the file.",
    "Wolves returned to the valley after a hundred years.",
    "Please find the signed contract attached to this message.",
    "The patient complains of chest pain and shortness of breath.",
    "Electric cars need fewer repairs than cars with a combustion engine.",
    "apple",
    "forty-two",
    "Prime numbers have exactly two divisors, one and themselves.",
    "The parliament voted for the new law by a narrow majority.",
    "Our flight to Lisbon was cancelled because of a strike.",
    "Stir the sauce slowly until it becomes thick.",
    "The vaccine protects against the most common strains of the virus.",
    "A triangle with three equal sides has three equal angles.",
    "Children under six travel free of charge.",
    "The committee published its report on the causes of the accident.",
    "Turn left at the traffic lights and follow the river.",
    "It was the worst hotel I have ever stayed in.",
    "It was the best hotel I have ever stayed in.",
    "The old lighthouse stands on a cliff above the sea.",
    "Neural networks learn by adjusting weights along a gradient.",
    "The farmers harvest olives in late autumn.",
    "Who wrote the music for this film?",
    "The company lays off a tenth of its staff.",
    "Ice floats because it is less dense than water.",
    "https://example.org/docs/index.html",
    "The treaty was signed in 1648 and ended the war.",
    "Never store passwords as plain text in a database.",
    "Our neighbours celebrate their golden wedding on Saturday.",
    "Bees find their way home by the position of the sun.",
    "The printer is out of paper again.",
    "This medicine may cause drowsiness; do not drive.",
    "Penguins cannot fly, but they are excellent swimmers.",
    "Rents in the city have doubled within ten years.",
    "A leap year has three hundred and sixty-six days.",
    "The orchestra tunes to the note of the oboe.",
    "He forgot his umbrella on the bus.",
    "Copper conducts electricity better than iron.",
    "The witness could not remember the colour of the van.",
    "Fold the paper in half along the dotted line.",
    "What is the capital of Australia?",
)
"""Texts of many kinds and a few languages, short enough for any model."""


def as_canary(texts: Sequence[str], vectors: SpaceLike) -> Embeddings:
    """Vectors with their texts as keys; given in the order of the texts, or with the texts as keys already."""
    space = as_space(vectors, "vectors")
    if len(texts) < MIN_COMMON or len(set(texts)) < len(texts):
        raise InputError(f"canaries: at least {MIN_COMMON} texts are needed, none of them twice; got {len(texts)}")
    by_key = [text for text in texts if text in space.row_of]
    if len(by_key) == len(texts):
        return space.take(space.rows(texts))
    if by_key or len(space) != len(texts):
        raise InputError(
            f"{space.source}: the vectors of {len(texts)} texts are needed, in their order or with the texts as keys; "
            f"got {len(space)} rows, {len(by_key)} of them under such keys (`kedge canary texts` prints the texts)"
        )
    return Embeddings(list(texts), space.vectors, space.source)


def check_canary(canary: Embeddings, vectors: SpaceLike) -> Drift:
    """Compare new vectors of a canary's texts with the stored ones."""
    return drift(canary, as_canary(list(canary.keys), vectors))
