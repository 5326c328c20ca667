"""`OneSet`: a family whose configurations are of one class, and one word of KERNELS. And what those
of backward passes and those that serve have in common."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from . import backward_names, serve_names
from .backward_config import BackwardKernelConfig
from .contract import KernelConfig, Variant
from .family import Family, Sets
from .serve_config import ServeKernelConfig

Config = TypeVar("Config", bound=KernelConfig)
BackwardConfig = TypeVar("BackwardConfig", bound=BackwardKernelConfig)
ServeConfig = TypeVar("ServeConfig", bound=ServeKernelConfig)


class OneSet(Family, Generic[Config]):
    """A family with one class of configurations, one list of them and one word for it."""

    CONFIG: type[Config]
    SET: ClassVar[str]  # the word of KERNELS

    @abstractmethod
    def configs(self) -> Sequence[Config]: ...

    def own(self, config: KernelConfig) -> Config:
        assert isinstance(config, self.CONFIG)
        return config

    def sets(self) -> Sets:
        return {self.SET: self.configs}

    def everything(self) -> Sequence[KernelConfig]:
        return self.configs()

    def candidates(self) -> Sequence[KernelConfig]:
        return self.configs()

    def how_to_build(self) -> str:
        targets = "" if self.TARGETS is None else f", for sm_{' and sm_'.join(self.TARGETS)}"
        return f"KERNELS={self.SET} or all{targets}"


class BackwardFamily(OneSet[BackwardConfig]):
    """A family of backward passes."""

    GRADIENTS: ClassVar[bool] = True

    def parse(self, text: str) -> KernelConfig | None:
        return backward_names.parse(self.CONFIG, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return backward_names.parse_symbol(self.CONFIG, text)


class ServeFamily(OneSet[ServeConfig]):
    """A family of forward passes that serve."""

    SERVES: ClassVar[bool] = True

    def parse(self, text: str) -> KernelConfig | None:
        return serve_names.parse(self.CONFIG, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return serve_names.parse_symbol(self.CONFIG, text)
