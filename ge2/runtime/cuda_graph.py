"""Executable CUDA graphs built explicitly from launch records, with updatable nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..errors import LaunchFailed
from . import driver
from .driver import Launch, check


class KernelGraph:
    """A chain of kernel nodes in record order; arguments can be changed after instantiation.

    Args:
        launches: in order, patched with the first addresses. Their Args blocks stay in use.
    """

    __slots__ = ("_api", "_exec", "_graph", "_grids", "_launch", "_launches", "_nodes", "_params",
                 "_set_params")

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._exec: Any = None
        self._graph: Any = None
        self._api = driver.api()
        self._launches = launches
        self._params = [launch.node_params() for launch in launches]
        self._grids = [launch.grid for launch in launches]
        self._graph = check(self._api.cuGraphCreate(0))
        self._nodes: list[Any] = []
        for launch, params in zip(launches, self._params, strict=True):
            self._add(launch, params)
        self._exec = check(self._api.cuGraphInstantiate(self._graph, 0), "instantiating a graph")
        self._launch = self._api.cuGraphLaunch
        self._set_params = self._api.cuGraphExecKernelNodeSetParams

    def _add(self, launch: Launch, params: Any) -> None:
        api, record = self._api, launch.record
        before = self._nodes[-1:]
        programmatic = record.pdl and before
        what = f"adding {record.kernel.entry} to a graph"
        node = check(api.cuGraphAddKernelNode(
            self._graph, None if programmatic else before or None,
            0 if programmatic else len(before), params), what)
        if programmatic:
            edge = api.CUgraphEdgeData()
            edge.type = api.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
            edge.from_port = api.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
            add = getattr(api, "cuGraphAddDependencies_v2", api.cuGraphAddDependencies)
            check(add(self._graph, before, [node], [edge], 1), what)
        for kind, value in driver.attributes(record, api.CUkernelNodeAttrValue):
            check(api.cuGraphKernelNodeSetAttribute(node, kind, value), what)
        self._nodes.append(node)

    def update(self, index: int) -> None:
        """Give node index the arguments and the grid that its Launch has now."""
        params, launch = self._params[index], self._launches[index]
        if self._grids[index] != launch.grid:
            params.gridDimX, params.gridDimY, params.gridDimZ = launch.grid
            self._grids[index] = launch.grid
        (status,) = self._set_params(self._exec, self._nodes[index], params)
        if status:
            raise LaunchFailed(f"updating {self._launches[index].record.kernel.entry} in a graph "
                               f"failed: {status.name}")

    def launch(self, stream: int) -> None:
        """Run all nodes on a stream."""
        (status,) = self._launch(self._exec, driver.stream_object(stream))
        if status:
            raise LaunchFailed(f"launching a graph of {len(self._nodes)} kernels failed: "
                               f"{status.name}",
                               hint="GE2_SYNC=1 launches one by one: it names the node and keeps a "
                                    "folder that launches it again")

    def __len__(self) -> int:
        return len(self._nodes)

    def __del__(self) -> None:
        if sys.is_finalizing():  # the driver's functions are gone, the process's graphs soon
            return
        with driver.relaxed_capture():  # garbage may be collected while the caller is capturing
            if self._exec is not None:
                self._api.cuGraphExecDestroy(self._exec)
            if self._graph is not None:
                self._api.cuGraphDestroy(self._graph)
