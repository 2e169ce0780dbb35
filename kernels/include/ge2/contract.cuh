// The contract between callers and kernels, as ge2/contract.py states it: codes and params blocks.
// All tables are append-only; a changed layout needs a new GE2_API_VERSION on both sides.
#pragma once

#define GE2_API_VERSION 3
#define GE2_MAX_RANK 8

namespace ge2 {

enum class Status : int {
    OK = 0,
    INVALID = -1,
    MISSING_INPUT = -2,
    DTYPE_MISMATCH = -3,
    SHAPE_MISMATCH = -4,
    STRIDE_MISMATCH = -5,
    LAYOUT_MISMATCH = -6,
    DEVICE_MISMATCH = -7,
    UNSUPPORTED = -8,
    COMPILE_FAILED = -9,
    LAUNCH_FAILED = -10,
    OUT_OF_MEMORY = -11,
    API_VERSION = -12,
};

enum class DType : int {
    F32 = 0,
    F16 = 1,
    BF16 = 2,
    F64 = 3,
    I32 = 4,
    I64 = 5,
    BOOL = 6,
    U8 = 7,
    I8 = 8,
    F8E4M3 = 9,
    F8E5M2 = 10,
};

enum class ActKind : int {
    NONE = 0,
    RELU = 1,
    GELU = 2,
    GELU_TANH = 3,
    SILU = 4,
    SIGMOID = 5,
    TANH = 6,
    LEAKY_RELU = 7,
    HARD_SWISH = 8,
    HARD_SIGMOID = 9,
    ELU = 10,
    SOFTPLUS = 11,
    MISH = 12,
    RELU6 = 13,
};

// First in every params block.
struct Header {
    unsigned struct_size;
    unsigned api_version;
    unsigned n_inputs;
    unsigned n_outputs;
};

// One per buffer, in buffer order. rank -1 marks an absent optional input; strides in elements.
struct TensorDesc {
    int dtype;
    int rank;
    long long shape[GE2_MAX_RANK];
    long long strides[GE2_MAX_RANK];
};

// Last in every params block, after the operator's attributes.
struct Trailer {
    unsigned long long workspace;
    unsigned long long workspace_size;
    unsigned long long semaphores;
};

}  // namespace ge2
