"""The tool's headings and labels in English and in the Chinese of the seed. Sentences that explain
figures, and errors, are English in both."""

from collections.abc import Callable

ENGLISH, CHINESE = "en", "zh"
LANGUAGES = (ENGLISH, CHINESE)

WORDS = {
    # The block of a configuration.
    "best configuration": ("AutoTune best configuration", "AutoTune 最佳配置信息"),
    "shape": ("shape", "形状"),
    "execution time": ("execution time", "执行时间"),
    "best parameters": ("best parameters", "最佳配置参数"),
    "theoretical flops": ("theoretical FLOPs", "理论FLOPS"),
    "achieved": ("achieved", "实际性能"),
    "bandwidth": ("memory bandwidth", "内存带宽"),
    # Tables.
    "provider": ("provider", "提供者"),
    "time (ms)": ("time (ms)", "执行时间 (ms)"),
    "bandwidth (GB/s)": ("bandwidth (GB/s)", "内存带宽 (GB/s)"),
    "memory (MB)": ("memory (MB)", "内存使用 (MB)"),
    "noise %": ("noise %", "噪声 %"),
    "speedup": ("speedup", "加速比"),
    "verdict": ("verdict", "结论"),
    "efficiency": ("efficiency", "效率"),
    "registers": ("registers", "寄存器"),
    "spills": ("spills (B)", "溢出 (B)"),
    "shared": ("shared (KB)", "共享内存 (KB)"),
    "blocks per SM": ("blocks/SM", "块/SM"),
    "occupancy %": ("occupancy %", "占用率 %"),
    "tiles": ("tiles", "块数"),
    "waves": ("waves", "波数"),
    "wave efficiency %": ("wave efficiency %", "波效率 %"),
    "flop per byte": ("FLOP/byte", "计算强度 (FLOP/B)"),
    "roof": ("roof (TFLOPS)", "上限 (TFLOPS)"),
    "of roof %": ("of the roof %", "达到上限 %"),
    "bound by": ("bound by", "受限于"),
    "tensor cores": ("tensor cores", "Tensor Core"),
    "device memory": ("device memory", "显存带宽"),
    "calls": ("calls", "次数"),
    "host (ms)": ("host (ms)", "主机 (ms)"),
    "device (ms)": ("device (ms)", "GPU (ms)"),
    # Headings.
    "performance": ("Performance", "性能指标"),
    "comparison": ("Comparison", "对比分析"),
    "speedup of PP": ("Speedup: pipelined (PP) over WS", "加速比：Pipeline版本相对基础版本"),
    "scaling": ("Scaling efficiency: long over short", "扩展效率：长序列相对短序列"),
    "resources": ("Resource use", "资源利用率"),
    "roofline": ("Achieved against the roofline", "相对Roofline的实际性能"),
    "deep analysis": ("Deep analysis", "深度分析"),
    "memory access": ("Memory access", "内存访问模式"),
    "compute": ("Compute efficiency", "计算效率"),
    "stalls": ("Stall reasons", "停顿原因"),
    "bottleneck": ("Bottleneck", "瓶颈"),
    "pipeline": ("Pipeline efficiency", "Pipeline效率"),
    "ranges": ("NVTX ranges", "NVTX标记"),
    "plots": ("Files", "文件"),
    # Figures of ncu.
    "load efficiency": ("global load efficiency", "Global Memory Load效率"),
    "store efficiency": ("global store efficiency", "Global Memory Store效率"),
    "l1 hit": ("L1 hit rate", "L1 Cache命中率"),
    "l2 hit": ("L2 hit rate", "L2 Cache命中率"),
    "bank conflicts": ("shared-memory bank conflicts", "Memory Bank Conflicts"),
    "bank conflict share": ("of shared-memory wavefronts", "占共享内存波前的比例"),
    "memory throughput": ("memory throughput", "内存吞吐"),
    "dram throughput": ("device-memory throughput", "显存吞吐"),
    "tensor use": ("tensor-core use", "Tensor Core利用率"),
    "warp efficiency": ("warp execution efficiency", "Warp执行效率"),
    "issue efficiency": ("issue slots used", "发射效率"),
    "ipc": ("instructions per cycle and SM", "指令吞吐量 (IPC/SM)"),
    "occupancy": ("achieved occupancy", "实际占用率"),
    "duration": ("duration", "执行时间"),
    "clock": ("SM clock", "SM频率"),
}  # fmt: skip

Words = Callable[[str], str]


def words(language: str) -> Words:
    """What a key is called in this language. Raises KeyError for a key that is not known."""
    column = LANGUAGES.index(language)
    return lambda key: WORDS[key][column]
