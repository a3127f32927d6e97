"""Stores, which keep vectors with ids and payloads: one module per kind, one small interface, one address each.

May import the modules of `kedge.spaces`, its formats and its safe writing; a client is imported when its store is used.
"""

from kedge.spaces.stores.address import KINDS, Address, as_address, is_address
from kedge.spaces.stores.registry import STORE_KINDS, StoreKind, open_store
from kedge.spaces.stores.store import DOCUMENT, NOTE, Batch, Description, Id, Metric, Store

__all__ = [
    "DOCUMENT",
    "KINDS",
    "NOTE",
    "STORE_KINDS",
    "Address",
    "Batch",
    "Description",
    "Id",
    "Metric",
    "Store",
    "StoreKind",
    "as_address",
    "is_address",
    "open_store",
]
