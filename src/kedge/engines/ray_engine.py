"""The engine on a cluster, or on this machine, with Ray Data, which schedules, retries and regroups."""

from __future__ import annotations

import logging
import os
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kedge.engines.engine import Finish, Split
from kedge.engines.messages import packed, unpacked
from kedge.errors import InputError, KedgeError
from kedge.extras import needing
from kedge.spaces.formats.parquet import import_pyarrow

# Bytes of messages that a task yields at once.
_HANDED_OVER = 32 * 2**20
# The start of a line of a traceback that names an error, other than Ray's own wrapper.
_ERROR = re.compile(r"(?!.*UserCodeException)(\w+\.)*\w*(Error|Exception|Died|Killed)\b")
# The group number of messages that say what is wrong with the data.
_FAULTS = -1


class EngineError(KedgeError):
    """The cluster failed where the data did not: a worker or a node was lost, or its memory was exhausted."""


class RayEngine:
    """Runs the functions over batches as tasks of Ray Data.

    Parameters
    ----------
    address : str, optional
        The address of a cluster. By default that in `RAY_ADDRESS`, or else a new Ray instance on this machine.
    options : for `ray.init`
        Such as `num_cpus`, if Ray is started here.
    """

    def __init__(self, address: str | None = None, **options: Any) -> None:
        with needing("--engine ray needs", "ray", install="kedge[ray]"):
            import ray
            import ray.data
        self._ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            # Do not join whatever cluster somebody has started on this machine, as Ray would by default.
            where = address or os.environ.get("RAY_ADDRESS") or "local"
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
            if where == "local":
                quiet |= {"include_dashboard": False}
            try:
                ray.init(address=where, **(quiet | options))
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise EngineError(f"{where}: Ray cannot be started or reached there ({_first_line(error)})") from error
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False

    def each(self, tasks: Sequence[Any], work: Callable[[Any], Any]) -> Iterator[Any]:
        """See `Engine.each`."""
        if not tasks:
            return
        with _explained():
            for row in self._items(tasks).map(_worked(work)).iter_rows():
                yield _opened(row["result"])

    def regroup(self, tasks: Sequence[Any], split: Split, finish: Finish, groups: int) -> Iterator[Any]:
        """See `Engine.regroup`."""
        if not tasks:
            return
        with _explained():
            messages = self._items(tasks).map_batches(_sent(split), batch_size=1, batch_format="pyarrow")
            grouped = messages.groupby("group", num_partitions=groups)
            for row in grouped.map_groups(_finished(finish), batch_format="pyarrow").iter_rows():
                yield _opened(row["result"])

    def close(self) -> None:
        """Stop Ray if it was started here; an instance that was already running is left alone."""
        if self._started:
            self._ray.shutdown()

    def _items(self, tasks: Sequence[Any]) -> Any:
        items = [{"task": pickle.dumps(task)} for task in tasks]
        return self._ray.data.from_items(items, override_num_blocks=len(items))


# Nested functions: Ray needs callables that have a name, and sends whatever they refer to along.


def _worked(work: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, bytes]]:
    def work_on_row(row: dict[str, Any]) -> dict[str, bytes]:
        return {"result": _closed(lambda: work(pickle.loads(row["task"])))}

    return work_on_row


def _closed(work: Callable[[], Any]) -> bytes:
    """Pickle what a function returns, or the message of a `KedgeError`, of which Ray would only pass on a traceback."""
    try:
        return pickle.dumps((work(), None))
    except KedgeError as error:
        return pickle.dumps((None, str(error)))


def _opened(result: bytes) -> Any:
    """The reverse of `_closed`: return the value, or raise the error."""
    value, fault = pickle.loads(result)
    if fault is not None:
        raise InputError(fault)
    return value


def _sent(split: Split) -> Callable[[Any], Iterator[Any]]:
    def send_messages(batch: Any) -> Iterator[Any]:
        for task in batch["task"].to_pylist():
            groups: list[int] = []
            messages: list[bytes] = []
            try:
                for group, table in split(pickle.loads(task)):
                    groups.append(group)
                    messages.append(packed(table))
                    if sum(map(len, messages)) > _HANDED_OVER:
                        yield _message_table(groups, messages)
                        groups, messages = [], []
            except KedgeError as error:
                groups, messages = [_FAULTS], [str(error).encode()]
            yield _message_table(groups, messages)

    return send_messages


def _message_table(groups: list[int], messages: list[bytes]) -> Any:
    pa, _ = import_pyarrow()
    columns = {"group": pa.array(groups, pa.int64()), "message": pa.array(messages, pa.large_binary())}
    return pa.table(columns)


def _finished(finish: Finish) -> Callable[[Any], Any]:
    def finish_group(batch: Any) -> Any:
        pa, _ = import_pyarrow()
        group, messages = batch["group"][0].as_py(), [message.as_buffer() for message in batch["message"]]
        if group == _FAULTS:
            result = pickle.dumps((None, messages[0].to_pybytes().decode()))
        else:
            result = _closed(lambda: finish(group, unpacked(messages)))
        return pa.table({"result": pa.array([result], pa.large_binary())})

    return finish_group


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of Ray into errors of one line."""
    import ray.exceptions

    try:
        yield
    except KedgeError:
        raise
    except ray.exceptions.RayError as error:
        raise EngineError(
            f"Ray could not finish ({_first_line(error)}); the output was not written, and --resume continues from "
            "what is done"
        ) from error


def _first_line(error: BaseException) -> str:
    """What happened, from the many lines of Ray's message: the last one that looks like an error, without advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or [type(error).__name__])[-1 if errors else 0][:300]
