"""A worker's backend that knows the warp-specialised providers beside those of the bench."""

from ..bench.cuda_backend import CudaBackend
from ..bench.measure import Candidate, Json
from . import resources
from .providers import CUDA, WS_PROVIDERS, bind


class WsBackend(CudaBackend):
    def candidate(self, provider: str, kernel: str) -> Candidate:
        if provider not in WS_PROVIDERS:
            return super().candidate(provider, kernel)
        tensors, out = self.tensors()
        bound = bind(provider, tensors, out, self.problem().causal)
        details: Json = {
            "label": provider, "parameters": bound.parameters, "tuned": bound.tuned,
            "note": bound.note,
        }  # fmt: skip
        ws = WS_PROVIDERS[provider]
        if ws.family == CUDA:
            kernel = bound.config.short_form()
            return self.our_candidate(kernel, **details, configuration=kernel)
        details |= resources.of_gluon(bound.config, self.problem(), ping_pong=ws.ping_pong)
        return self.candidate_of(bound.run, details)
