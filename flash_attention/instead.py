"""What to call in place of a problem that no kernel takes."""

from dataclasses import replace

from flash_helpers.kernels.family import Capability
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference


def instead_of(problem: AttentionProblem, capability: Capability | None) -> str:
    """Half a sentence: the same call with a head dimension that kernels have (zeros change no
    score, and no gradient of what is kept); where there is none, PyTorch's."""
    d_head = problem.d_head
    wider = (d for d in _head_dimensions(problem, capability) if d > d_head)
    for padded in sorted(wider):
        if _is_served(replace(problem, d_head=padded, d_v=padded), capability):
            return (
                f"instead, pad q, k and v with zeros to head dimension {padded} "
                f"(torch.nn.functional.pad(x, (0, {padded - d_head}))), pass softmax_scale="
                f"{d_head} ** -0.5 unless it is given, and keep [..., :{d_head}] of the output"
            )
    return "instead, torch.nn.functional.scaled_dot_product_attention takes any"


def _head_dimensions(problem: AttentionProblem, capability: Capability | None) -> set[int]:
    families = by_preference(capability, gradients=problem.gradients)
    return {d_head for family in families for d_head in family.HEAD_DIMENSIONS}


def _is_served(problem: AttentionProblem, capability: Capability | None) -> bool:
    """With its output, where it is about gradients."""
    return all(
        any(
            family.refusal(replace(problem, gradients=gradients), capability) is None
            for family in by_preference(capability, gradients=gradients)
        )
        for gradients in {False, problem.gradients}
    )
