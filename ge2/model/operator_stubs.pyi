"""Types of the operator methods of GraphBuilder; written by docs/generate.py."""

from collections.abc import Sequence
from typing import Any, Literal

from ..compiler.ir.dim import Extent
from .value import Operand, Value

class OperatorMethods:
    def identity(self, x: Operand, *, name: str | None = None) -> Value:
        """x.

        Operator IDENTITY(x).
        """

    def cast(self, x: Operand, *, to: str, name: str | None = None) -> Value:
        """x in another element type; float to integer truncates and saturates.

        Operator CAST(x).

        Args:
            to: dtype, required. element type; 8-bit floats saturate.
        """

    def neg(self, x: Operand, *, name: str | None = None) -> Value:
        """-x.

        Operator NEG(x).
        """

    def abs(self, x: Operand, *, name: str | None = None) -> Value:
        """|x|.

        Operator ABS(x).
        """

    def sign(self, x: Operand, *, name: str | None = None) -> Value:
        """-1, 0 or 1; NaN stays NaN.

        Operator SIGN(x).
        """

    def exp(self, x: Operand, *, name: str | None = None) -> Value:
        """e to the x.

        Operator EXP(x).
        """

    def expm1(self, x: Operand, *, name: str | None = None) -> Value:
        """exp(x) - 1 without cancellation.

        Operator EXPM1(x).
        """

    def log(self, x: Operand, *, name: str | None = None) -> Value:
        """Natural logarithm.

        Operator LOG(x).
        """

    def log1p(self, x: Operand, *, name: str | None = None) -> Value:
        """log(1 + x) without cancellation.

        Operator LOG1P(x).
        """

    def sqrt(self, x: Operand, *, name: str | None = None) -> Value:
        """Square root.

        Operator SQRT(x).
        """

    def rsqrt(self, x: Operand, *, name: str | None = None) -> Value:
        """1 / sqrt(x).

        Operator RSQRT(x).
        """

    def reciprocal(self, x: Operand, *, name: str | None = None) -> Value:
        """1 / x.

        Operator RECIPROCAL(x).
        """

    def sin(self, x: Operand, *, name: str | None = None) -> Value:
        """Sine.

        Operator SIN(x).
        """

    def cos(self, x: Operand, *, name: str | None = None) -> Value:
        """Cosine.

        Operator COS(x).
        """

    def tan(self, x: Operand, *, name: str | None = None) -> Value:
        """Tangent.

        Operator TAN(x).
        """

    def asin(self, x: Operand, *, name: str | None = None) -> Value:
        """Arc sine.

        Operator ASIN(x).
        """

    def acos(self, x: Operand, *, name: str | None = None) -> Value:
        """Arc cosine.

        Operator ACOS(x).
        """

    def atan(self, x: Operand, *, name: str | None = None) -> Value:
        """Arc tangent.

        Operator ATAN(x).
        """

    def sinh(self, x: Operand, *, name: str | None = None) -> Value:
        """Hyperbolic sine.

        Operator SINH(x).
        """

    def cosh(self, x: Operand, *, name: str | None = None) -> Value:
        """Hyperbolic cosine.

        Operator COSH(x).
        """

    def tanh(self, x: Operand, *, name: str | None = None) -> Value:
        """Hyperbolic tangent.

        Operator TANH(x).
        """

    def asinh(self, x: Operand, *, name: str | None = None) -> Value:
        """Inverse hyperbolic sine.

        Operator ASINH(x).
        """

    def acosh(self, x: Operand, *, name: str | None = None) -> Value:
        """Inverse hyperbolic cosine.

        Operator ACOSH(x).
        """

    def atanh(self, x: Operand, *, name: str | None = None) -> Value:
        """Inverse hyperbolic tangent.

        Operator ATANH(x).
        """

    def erf(self, x: Operand, *, name: str | None = None) -> Value:
        """Error function.

        Operator ERF(x).
        """

    def floor(self, x: Operand, *, name: str | None = None) -> Value:
        """Largest integer not above x.

        Operator FLOOR(x).
        """

    def ceil(self, x: Operand, *, name: str | None = None) -> Value:
        """Smallest integer not below x.

        Operator CEIL(x).
        """

    def round(self, x: Operand, *, name: str | None = None) -> Value:
        """Nearest integer, halves to even.

        Operator ROUND(x).
        """

    def trunc(self, x: Operand, *, name: str | None = None) -> Value:
        """Integer part.

        Operator TRUNC(x).
        """

    def isnan(self, x: Operand, *, name: str | None = None) -> Value:
        """Whether x is NaN.

        Operator ISNAN(x).
        """

    def isinf(
        self,
        x: Operand,
        *,
        detect_negative: bool = True,
        detect_positive: bool = True,
        name: str | None = None,
    ) -> Value:
        """Whether x is infinite.

        Operator ISINF(x).

        Args:
            detect_negative: bool, default True. -inf counts.
            detect_positive: bool, default True. +inf counts.
        """

    def not_(self, x: Operand, *, name: str | None = None) -> Value:
        """Logical not.

        Operator NOT(x).
        """

    def bitwise_not(self, x: Operand, *, name: str | None = None) -> Value:
        """Every bit flipped.

        Operator BITWISE_NOT(x).
        """

    def clip(
        self,
        x: Operand,
        *,
        min: float | None = None,
        max: float | None = None,
        name: str | None = None,
    ) -> Value:
        """x limited to [min, max]; NaN stays NaN.

        Operator CLIP(x).

        Args:
            min: float, default None. lower bound; none when absent.
            max: float, default None. upper bound; none when absent.
        """

    def relu(self, x: Operand, *, name: str | None = None) -> Value:
        """max(x, 0).

        Operator RELU(x).
        """

    def relu6(self, x: Operand, *, name: str | None = None) -> Value:
        """x limited to [0, 6].

        Operator RELU6(x).
        """

    def gelu(
        self,
        x: Operand,
        *,
        approximate: Literal['none', 'tanh'] = 'none',
        name: str | None = None,
    ) -> Value:
        """x * Phi(x).

        Operator GELU(x).

        Args:
            approximate: str, default 'none', one of none, tanh. formula.
        """

    def sigmoid(self, x: Operand, *, name: str | None = None) -> Value:
        """1 / (1 + exp(-x)).

        Operator SIGMOID(x).
        """

    def silu(self, x: Operand, *, name: str | None = None) -> Value:
        """x * sigmoid(x).

        Operator SILU(x).
        """

    def swish(self, x: Operand, *, alpha: float = 1.0, name: str | None = None) -> Value:
        """x * sigmoid(alpha * x).

        Operator SWISH(x).

        Args:
            alpha: float, default 1.0.
        """

    def leaky_relu(self, x: Operand, *, alpha: float = 0.01, name: str | None = None) -> Value:
        """x or alpha * x.

        Operator LEAKY_RELU(x).

        Args:
            alpha: float, default 0.01. slope of the negative side.
        """

    def prelu(self, x: Operand, slope: Operand, *, name: str | None = None) -> Value:
        """x or slope * x.

        Operator PRELU(x, slope).
        """

    def elu(self, x: Operand, *, alpha: float = 1.0, name: str | None = None) -> Value:
        """x or alpha * (exp(x) - 1).

        Operator ELU(x).

        Args:
            alpha: float, default 1.0.
        """

    def selu(
        self,
        x: Operand,
        *,
        alpha: float = 1.6732632423543772,
        gamma: float = 1.0507009873554805,
        name: str | None = None,
    ) -> Value:
        """gamma * ELU(x, alpha).

        Operator SELU(x).

        Args:
            alpha: float, default 1.6732632423543772.
            gamma: float, default 1.0507009873554805.
        """

    def celu(self, x: Operand, *, alpha: float = 1.0, name: str | None = None) -> Value:
        """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0).

        Operator CELU(x).

        Args:
            alpha: float, default 1.0.
        """

    def hard_sigmoid(
        self,
        x: Operand,
        *,
        alpha: float = 0.2,
        beta: float = 0.5,
        name: str | None = None,
    ) -> Value:
        """alpha * x + beta limited to [0, 1].

        Operator HARD_SIGMOID(x).

        Args:
            alpha: float, default 0.2.
            beta: float, default 0.5.
        """

    def hard_swish(self, x: Operand, *, name: str | None = None) -> Value:
        """x * (x / 6 + 0.5 limited to [0, 1]).

        Operator HARD_SWISH(x).
        """

    def softplus(self, x: Operand, *, name: str | None = None) -> Value:
        """log(1 + exp(x)) without overflow.

        Operator SOFTPLUS(x).
        """

    def softsign(self, x: Operand, *, name: str | None = None) -> Value:
        """x / (1 + |x|).

        Operator SOFTSIGN(x).
        """

    def mish(self, x: Operand, *, name: str | None = None) -> Value:
        """x * tanh(softplus(x)).

        Operator MISH(x).
        """

    def thresholded_relu(self, x: Operand, *, alpha: float = 1.0, name: str | None = None) -> Value:
        """x where x > alpha, else 0.

        Operator THRESHOLDED_RELU(x).

        Args:
            alpha: float, default 1.0.
        """

    def shrink(
        self,
        x: Operand,
        *,
        lambd: float = 0.5,
        bias: float = 0.0,
        name: str | None = None,
    ) -> Value:
        """x - bias above lambd, x + bias below -lambd, else 0.

        Operator SHRINK(x).

        Args:
            lambd: float, default 0.5.
            bias: float, default 0.0.
        """

    def add(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a + b.

        Operator ADD(a, b).
        """

    def sub(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a - b.

        Operator SUB(a, b).
        """

    def mul(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a * b.

        Operator MUL(a, b).
        """

    def div(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a / b; integers truncate, by 0 they give 0.

        Operator DIV(a, b).
        """

    def pow(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a to the b, in a's element type.

        Operator POW(a, b).
        """

    def mod(self, a: Operand, b: Operand, *, fmod: bool = False, name: str | None = None) -> Value:
        """Remainder with the sign of b; of a with fmod.

        Operator MOD(a, b).

        Args:
            fmod: bool, default False. as C fmod.
        """

    def atan2(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """Angle of the point (b, a).

        Operator ATAN2(a, b).
        """

    def max(self, x: Operand, *xs: Operand, name: str | None = None) -> Value:
        """Largest; NaN propagates.

        Operator MAX(x, xs*).
        """

    def min(self, x: Operand, *xs: Operand, name: str | None = None) -> Value:
        """Smallest; NaN propagates.

        Operator MIN(x, xs*).
        """

    def sum(self, x: Operand, *xs: Operand, name: str | None = None) -> Value:
        """Sum of the inputs.

        Operator SUM(x, xs*).
        """

    def mean(self, x: Operand, *xs: Operand, name: str | None = None) -> Value:
        """Mean of the inputs.

        Operator MEAN(x, xs*).
        """

    def bit_shift(
        self,
        a: Operand,
        b: Operand,
        *,
        direction: Literal['LEFT', 'RIGHT'],
        name: str | None = None,
    ) -> Value:
        """a shifted by b bits.

        Operator BIT_SHIFT(a, b).

        Args:
            direction: str, required, one of LEFT, RIGHT. way.
        """

    def bitwise_and(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """Bitwise and.

        Operator BITWISE_AND(a, b).
        """

    def bitwise_or(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """Bitwise or.

        Operator BITWISE_OR(a, b).
        """

    def bitwise_xor(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """Bitwise xor.

        Operator BITWISE_XOR(a, b).
        """

    def and_(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """Logical and.

        Operator AND(a, b).
        """

    def or_(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """Logical or.

        Operator OR(a, b).
        """

    def xor(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """Logical xor.

        Operator XOR(a, b).
        """

    def equal(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a == b.

        Operator EQUAL(a, b).
        """

    def not_equal(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a != b.

        Operator NOT_EQUAL(a, b).
        """

    def less(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a < b.

        Operator LESS(a, b).
        """

    def less_or_equal(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a <= b.

        Operator LESS_OR_EQUAL(a, b).
        """

    def greater(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a > b.

        Operator GREATER(a, b).
        """

    def greater_or_equal(self, a: Operand, b: Operand, *, name: str | None = None) -> Value:
        """a >= b.

        Operator GREATER_OR_EQUAL(a, b).
        """

    def where(
        self,
        condition: Operand,
        x: Operand,
        y: Operand,
        *,
        name: str | None = None,
    ) -> Value:
        """x where condition holds, else y.

        Operator WHERE(condition, x, y).
        """

    def fused_elementwise(
        self,
        *xs: Operand,
        expr: object,
        dtypes: str = '',
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """A formula over broadcast inputs, made by fusion.

        Operator FUSED_ELEMENTWISE(xs*).

        Args:
            expr: expr, required. formula over the inputs.
            dtypes: str, default ''. element types of the outputs, separated by commas.
        """

    def matmul(self, A: Operand, B: Operand, *, name: str | None = None) -> Value:
        """Matrix product with broadcast batch axes, as numpy.matmul.

        Operator MATMUL(A, B).
        """

    def gemm_bias_act(
        self,
        A: Operand,
        B: Operand,
        bias: Operand | None = None,
        C: Operand | None = None,
        *extras: Operand,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 1.0,
        act: str = 'none',
        leaky_slope: float = 0.01,
        epilogue: object | None = None,
        f32: Literal['default', 'ieee', 'tf32', 'x3'] = 'default',
        rows: Literal['none', 'sum', 'sumsquare', 'max'] = 'none',
        name: str | None = None,
    ) -> Value:
        """act(alpha * op(A) op(B) + beta * C + bias) with broadcast batch axes.

        Operator GEMM_BIAS_ACT(A, B, bias?, C?, extras*).

        Args:
            trans_a: bool, default False. A is stored [K, M].
            trans_b: bool, default False. B is stored [N, K].
            alpha: float, default 1.0. factor of the product.
            beta: float, default 1.0. factor of C.
            act: str, default 'none', one of none, relu, gelu, gelu_tanh, silu, sigmoid,
                tanh, leaky_relu, hard_swish, hard_sigmoid, elu, softplus, mish, relu6.
                activation.
            leaky_slope: float, default 0.01. slope of leaky_relu.
            epilogue: expr, default None. replaces the sum and act: input 0 is the sum of
                products, 1 bias, 2 C, 3.. extras; scalars 0 and 1 are alpha and beta; one
                or two outputs.
            f32: str, default 'default', one of default, ieee, tf32, x3. how products of f32
                are computed; default: as GE2_F32 says.
            rows: str, default 'none', one of none, sum, sumsquare, max. of each row of the
                first output: a further output [..., M, 1].
        """

    def einsum(self, *xs: Operand, equation: str, name: str | None = None) -> Value:
        """Sum of products named by an equation; a matrix product where it is one.

        Operator EINSUM(xs*).

        Args:
            equation: str, required. as numpy.einsum, letters and '...'.
        """

    def quantize(
        self,
        x: Operand,
        scale: Operand,
        zero_point: Operand | None = None,
        *,
        axis: Extent = 1,
        block_size: Extent = 0,
        output_dtype: str | None = None,
        name: str | None = None,
    ) -> Value:
        """round(x / scale) + zero_point, saturated; halves to even.

        Operator QUANTIZE(x, scale, zero_point?).

        Args:
            axis: int, default 1. axis of a per-axis scale.
            block_size: int, default 0. elements of axis that share a scale; 0 = all.
            output_dtype: dtype, default None. u8, i8 or an 8-bit float; default u8.
        """

    def dequantize(
        self,
        x: Operand,
        scale: Operand,
        zero_point: Operand | None = None,
        *,
        axis: Extent = 1,
        block_size: Extent = 0,
        name: str | None = None,
    ) -> Value:
        """(x - zero_point) * scale, in scale's element type.

        Operator DEQUANTIZE(x, scale, zero_point?).

        Args:
            axis: int, default 1. axis of a per-axis scale.
            block_size: int, default 0. elements of axis that share a scale; 0 = all.
        """

    def dynamic_quantize(self, x: Operand, *, name: str | None = None) -> tuple[Value, ...]:
        """x as u8 with the scale and zero point of its own range (outputs y, scale, zero).

        Operator DYNAMIC_QUANTIZE(x).
        """

    def matmul_integer(
        self,
        A: Operand,
        B: Operand,
        a_zero_point: Operand | None = None,
        b_zero_point: Operand | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """Product of byte matrices less zero points, in i32.

        Operator MATMUL_INTEGER(A, B, a_zero_point?, b_zero_point?).
        """

    def softmax(self, x: Operand, *, axis: Extent = -1, name: str | None = None) -> Value:
        """exp(x) / sum(exp(x)) along an axis; a row of -inf only is NaN.

        Operator SOFTMAX(x).

        Args:
            axis: int, default -1. axis to normalise over.
        """

    def log_softmax(self, x: Operand, *, axis: Extent = -1, name: str | None = None) -> Value:
        """Logarithm of SOFTMAX, without cancellation.

        Operator LOG_SOFTMAX(x).

        Args:
            axis: int, default -1. axis to normalise over.
        """

    def masked_softmax(
        self,
        x: Operand,
        mask: Operand,
        *,
        axis: Extent = -1,
        name: str | None = None,
    ) -> Value:
        """SOFTMAX over the positions where mask is true; 0 elsewhere and in rows of none.

        Operator MASKED_SOFTMAX(x, mask).

        Args:
            axis: int, default -1. axis to normalise over.
        """

    def layer_norm(
        self,
        x: Operand,
        scale: Operand,
        bias: Operand | None = None,
        *,
        axis: Extent = -1,
        epsilon: float = 1e-05,
        name: str | None = None,
    ) -> Value:
        """(x - mean) / sqrt(var + epsilon) * scale + bias over axis and all after it.

        Operator LAYER_NORM(x, scale, bias?).

        Args:
            axis: int, default -1. axis to normalise over.
            epsilon: float, default 1e-05. added to the variance.
        """

    def rms_norm(
        self,
        x: Operand,
        scale: Operand,
        *,
        axis: Extent = -1,
        epsilon: float = 1e-05,
        name: str | None = None,
    ) -> Value:
        """x / sqrt(mean(x * x) + epsilon) * scale over axis and all after it.

        Operator RMS_NORM(x, scale).

        Args:
            axis: int, default -1. axis to normalise over.
            epsilon: float, default 1e-05. added to the variance.
        """

    def batch_norm(
        self,
        x: Operand,
        scale: Operand,
        bias: Operand,
        mean: Operand,
        var: Operand,
        *,
        epsilon: float = 1e-05,
        name: str | None = None,
    ) -> Value:
        """(x - mean) / sqrt(var + epsilon) * scale + bias per channel; mean, var given.

        Operator BATCH_NORM(x, scale, bias, mean, var).

        Args:
            epsilon: float, default 1e-05. added to the variance.
        """

    def group_norm(
        self,
        x: Operand,
        scale: Operand,
        bias: Operand,
        *,
        num_groups: Extent,
        epsilon: float = 1e-05,
        name: str | None = None,
    ) -> Value:
        """Layer norm over each group of channels, then scale and bias per channel.

        Operator GROUP_NORM(x, scale, bias).

        Args:
            num_groups: int, required. groups of channels.
            epsilon: float, default 1e-05. added to the variance.
        """

    def instance_norm(
        self,
        x: Operand,
        scale: Operand,
        bias: Operand,
        *,
        epsilon: float = 1e-05,
        name: str | None = None,
    ) -> Value:
        """Layer norm over each channel of each sample, then scale and bias per channel.

        Operator INSTANCE_NORM(x, scale, bias).

        Args:
            epsilon: float, default 1e-05. added to the variance.
        """

    def lp_norm(
        self,
        x: Operand,
        *,
        axis: Extent = -1,
        p: Extent = 2,
        name: str | None = None,
    ) -> Value:
        """x divided by its norm along an axis; 0 where that is 0.

        Operator LP_NORM(x).

        Args:
            axis: int, default -1. axis to normalise over.
            p: int, default 2. 1 or 2.
        """

    def mean_variance_norm(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] = (0, 2, 3),
        name: str | None = None,
    ) -> Value:
        """(x - mean) / standard deviation over axes.

        Operator MEAN_VARIANCE_NORM(x).

        Args:
            axes: ints, default (0, 2, 3). axes of the statistics.
        """

    def lrn(
        self,
        x: Operand,
        *,
        size: Extent,
        alpha: float = 0.0001,
        beta: float = 0.75,
        bias: float = 1.0,
        name: str | None = None,
    ) -> Value:
        """x / (bias + alpha * mean of squares over neighbouring channels) ** beta.

        Operator LRN(x).

        Args:
            size: int, required. channels in a window.
            alpha: float, default 0.0001. factor.
            beta: float, default 0.75. exponent.
            bias: float, default 1.0. addend.
        """

    def reduce_sum(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Sum over axes.

        Operator REDUCE_SUM(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def reduce_mean(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Mean over axes; of nothing NaN; integers truncate.

        Operator REDUCE_MEAN(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def reduce_max(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Maximum over axes; NaN propagates; of nothing the lowest value.

        Operator REDUCE_MAX(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def reduce_min(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Minimum over axes; NaN propagates; of nothing the highest value.

        Operator REDUCE_MIN(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def reduce_prod(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Product over axes.

        Operator REDUCE_PROD(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def reduce_l1(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Sum of absolute values over axes.

        Operator REDUCE_L1(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def reduce_l2(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Square root of the sum of squares over axes.

        Operator REDUCE_L2(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def reduce_sumsquare(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Sum of squares over axes.

        Operator REDUCE_SUMSQUARE(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def reduce_logsum(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Logarithm of the sum over axes.

        Operator REDUCE_LOGSUM(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def reduce_logsumexp(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """Logarithm of the sum of exponentials over axes, without overflow.

        Operator REDUCE_LOGSUMEXP(x).

        Args:
            axes: ints, default None. axes to reduce; all when absent.
            keepdims: bool, default True. keep reduced axes with extent 1.
            noop_with_empty_axes: bool, default False. empty axes reduce nothing.
        """

    def argmax(
        self,
        x: Operand,
        *,
        axis: Extent = 0,
        keepdims: bool = True,
        select_last_index: bool = False,
        name: str | None = None,
    ) -> Value:
        """Index of the maximum along an axis; the first NaN wins.

        Operator ARGMAX(x).

        Args:
            axis: int, default 0. axis.
            keepdims: bool, default True. keep the axis with extent 1.
            select_last_index: bool, default False. ties go to the last index.
        """

    def argmin(
        self,
        x: Operand,
        *,
        axis: Extent = 0,
        keepdims: bool = True,
        select_last_index: bool = False,
        name: str | None = None,
    ) -> Value:
        """Index of the minimum along an axis; the first NaN wins.

        Operator ARGMIN(x).

        Args:
            axis: int, default 0. axis.
            keepdims: bool, default True. keep the axis with extent 1.
            select_last_index: bool, default False. ties go to the last index.
        """

    def topk(
        self,
        x: Operand,
        *,
        k: Extent,
        axis: Extent = -1,
        largest: bool = True,
        sorted: bool = True,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """The k extreme values along an axis and their indices; ties go to the lower index.

        Operator TOPK(x).

        Args:
            k: int, required. how many.
            axis: int, default -1. axis.
            largest: bool, default True. largest or smallest.
            sorted: bool, default True. in order; they always are.
        """

    def hardmax(self, x: Operand, *, axis: Extent = -1, name: str | None = None) -> Value:
        """1 at the first maximum along an axis, 0 elsewhere.

        Operator HARDMAX(x).

        Args:
            axis: int, default -1. axis.
        """

    def cumsum(
        self,
        x: Operand,
        *,
        axis: Extent,
        exclusive: bool = False,
        reverse: bool = False,
        name: str | None = None,
    ) -> Value:
        """Running sum along an axis.

        Operator CUMSUM(x).

        Args:
            axis: int, required. axis to run along.
            exclusive: bool, default False. leave the element itself out.
            reverse: bool, default False. run from the end.
        """

    def cumprod(
        self,
        x: Operand,
        *,
        axis: Extent,
        exclusive: bool = False,
        reverse: bool = False,
        name: str | None = None,
    ) -> Value:
        """Running product along an axis.

        Operator CUMPROD(x).

        Args:
            axis: int, required. axis to run along.
            exclusive: bool, default False. leave the element itself out.
            reverse: bool, default False. run from the end.
        """

    def trilu(
        self,
        x: Operand,
        *,
        upper: bool = True,
        k: Extent = 0,
        name: str | None = None,
    ) -> Value:
        """A triangle of each matrix; 0 elsewhere.

        Operator TRILU(x).

        Args:
            upper: bool, default True. keep the upper triangle.
            k: int, default 0. diagonal that bounds it.
        """

    def range(
        self,
        *,
        start: float | Extent = 0.0,
        limit: float | Extent,
        delta: float = 1.0,
        dtype: str = 'i64',
        name: str | None = None,
    ) -> Value:
        """start, start + delta, ... before limit.

        Operator RANGE().

        Args:
            start: float, default 0.0. first value; may be an extent.
            limit: float, required. end, exclusive; may be an extent.
            delta: float, default 1.0. step.
            dtype: dtype, default 'i64'. element type.
        """

    def eye_like(
        self,
        x: Operand,
        *,
        k: Extent = 0,
        dtype: str | None = None,
        name: str | None = None,
    ) -> Value:
        """A matrix of x's shape with ones on a diagonal.

        Operator EYE_LIKE(x).

        Args:
            k: int, default 0. diagonal.
            dtype: dtype, default None. element type; that of x when absent.
        """

    def reverse_sequence(
        self,
        x: Operand,
        sequence_lens: Operand,
        *,
        batch_axis: Extent = 1,
        time_axis: Extent = 0,
        name: str | None = None,
    ) -> Value:
        """Reverse the leading part of each sequence.

        Operator REVERSE_SEQUENCE(x, sequence_lens).

        Args:
            batch_axis: int, default 1. axis of samples.
            time_axis: int, default 0. axis of time.
        """

    def transpose(
        self,
        x: Operand,
        *,
        perm: Sequence[Extent] | None = None,
        name: str | None = None,
    ) -> Value:
        """Permute axes.

        Operator TRANSPOSE(x).

        Args:
            perm: ints, default None. axis order; reversed.
        """

    def reshape(
        self,
        x: Operand,
        *,
        shape: Sequence[Extent],
        allowzero: bool = False,
        name: str | None = None,
    ) -> Value:
        """Same elements in row-major order under another shape.

        Operator RESHAPE(x).

        Args:
            shape: ints, required. 0 copies an extent, one -1 is computed.
            allowzero: bool, default False. 0 means an empty axis.
        """

    def flatten(self, x: Operand, *, axis: Extent = 1, name: str | None = None) -> Value:
        """Two axes: the product of those before axis, and of the rest.

        Operator FLATTEN(x).

        Args:
            axis: int, default 1. first axis of the columns.
        """

    def squeeze(
        self,
        x: Operand,
        *,
        axes: Sequence[Extent] | None = None,
        name: str | None = None,
    ) -> Value:
        """Drop axes of extent 1.

        Operator SQUEEZE(x).

        Args:
            axes: ints, default None. axes of extent 1 to drop; all when absent.
        """

    def unsqueeze(self, x: Operand, *, axes: Sequence[Extent], name: str | None = None) -> Value:
        """Insert axes of extent 1.

        Operator UNSQUEEZE(x).

        Args:
            axes: ints, required. positions in the output.
        """

    def expand(self, x: Operand, *, shape: Sequence[Extent], name: str | None = None) -> Value:
        """Broadcast with a shape.

        Operator EXPAND(x).

        Args:
            shape: ints, required. to broadcast with.
        """

    def concat(self, x: Operand, *xs: Operand, axis: Extent, name: str | None = None) -> Value:
        """Join tensors along an axis.

        Operator CONCAT(x, xs*).

        Args:
            axis: int, required. axis to join.
        """

    def slice(
        self,
        x: Operand,
        *,
        starts: Sequence[Extent],
        ends: Sequence[Extent],
        axes: Sequence[Extent] | None = None,
        steps: Sequence[Extent] | None = None,
        name: str | None = None,
    ) -> Value:
        """Cut ranges out of axes.

        Operator SLICE(x).

        Args:
            starts: ints, required. first index per axis.
            ends: ints, required. end index per axis, exclusive.
            axes: ints, default None. axes; the leading ones when absent.
            steps: ints, default None. steps; may be negative.
        """

    def flip(self, x: Operand, *, axes: Sequence[Extent], name: str | None = None) -> Value:
        """Reverse the order of elements along axes.

        Operator FLIP(x).

        Args:
            axes: ints, required. axes to reverse.
        """

    def split(
        self,
        x: Operand,
        *,
        axis: Extent = 0,
        split: Sequence[Extent] | None = None,
        num_outputs: Extent | None = None,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """Cut an axis into pieces.

        Operator SPLIT(x).

        Args:
            axis: int, default 0. axis to cut.
            split: ints, default None. extents of the pieces.
            num_outputs: int, default None. equal pieces; the last may be smaller.
        """

    def pad(
        self,
        x: Operand,
        *,
        pads: Sequence[Extent],
        mode: Literal['constant', 'reflect', 'edge', 'wrap'] = 'constant',
        value: float = 0.0,
        axes: Sequence[Extent] | None = None,
        name: str | None = None,
    ) -> Value:
        """Extend (or crop) axes at both ends.

        Operator PAD(x).

        Args:
            pads: ints, required. begins, then ends; negative ones crop.
            mode: str, default 'constant', one of constant, reflect, edge, wrap. fill.
            value: float, default 0.0. fill of constant.
            axes: ints, default None. axes that pads names; all when absent.
        """

    def tile(self, x: Operand, *, repeats: Sequence[Extent], name: str | None = None) -> Value:
        """Repeat the whole tensor along axes.

        Operator TILE(x).

        Args:
            repeats: ints, required. copies per axis.
        """

    def depth_to_space(
        self,
        x: Operand,
        *,
        blocksize: Extent,
        mode: Literal['DCR', 'CRD'] = 'DCR',
        name: str | None = None,
    ) -> Value:
        """Channels into blocks of pixels.

        Operator DEPTH_TO_SPACE(x).

        Args:
            blocksize: int, required. extent of a block.
            mode: str, default 'DCR', one of DCR, CRD. channel order.
        """

    def space_to_depth(
        self,
        x: Operand,
        *,
        blocksize: Extent,
        mode: Literal['DCR', 'CRD'] = 'DCR',
        name: str | None = None,
    ) -> Value:
        """Blocks of pixels into channels.

        Operator SPACE_TO_DEPTH(x).

        Args:
            blocksize: int, required. extent of a block.
            mode: str, default 'DCR', one of DCR, CRD. channel order.
        """

    def gather(
        self,
        x: Operand,
        indices: Operand,
        *,
        axis: Extent = 0,
        name: str | None = None,
    ) -> Value:
        """Pick slices along an axis; negative indices count from the end.

        Operator GATHER(x, indices).

        Args:
            axis: int, default 0. axis to pick along.
        """

    def gather_elements(
        self,
        x: Operand,
        indices: Operand,
        *,
        axis: Extent = 0,
        name: str | None = None,
    ) -> Value:
        """Pick single elements along an axis.

        Operator GATHER_ELEMENTS(x, indices).

        Args:
            axis: int, default 0. axis that the indices run along.
        """

    def gather_nd(
        self,
        x: Operand,
        indices: Operand,
        *,
        batch_dims: Extent = 0,
        name: str | None = None,
    ) -> Value:
        """Pick slices at index tuples.

        Operator GATHER_ND(x, indices).

        Args:
            batch_dims: int, default 0. leading axes shared with the indices.
        """

    def one_hot(
        self,
        indices: Operand,
        values: Operand,
        *,
        depth: Extent,
        axis: Extent = -1,
        name: str | None = None,
    ) -> Value:
        """values[1] where the new axis meets the index, values[0] elsewhere.

        Operator ONE_HOT(indices, values).

        Args:
            depth: int, required. extent of the new axis.
            axis: int, default -1. place of the new axis in the output.
        """

    def scatter_elements(
        self,
        x: Operand,
        indices: Operand,
        updates: Operand,
        *,
        axis: Extent = 0,
        reduction: Literal['none', 'add', 'mul', 'max', 'min'] = 'none',
        name: str | None = None,
    ) -> Value:
        """x with single elements replaced or combined; indices outside are dropped.

        Operator SCATTER_ELEMENTS(x, indices, updates).

        Args:
            axis: int, default 0. axis that the indices run along.
            reduction: str, default 'none', one of none, add, mul, max, min. how values at
                one position combine.
        """

    def scatter_nd(
        self,
        x: Operand,
        indices: Operand,
        updates: Operand,
        *,
        reduction: Literal['none', 'add', 'mul', 'max', 'min'] = 'none',
        name: str | None = None,
    ) -> Value:
        """x with slices at index tuples replaced or combined; tuples outside are dropped.

        Operator SCATTER_ND(x, indices, updates).

        Args:
            reduction: str, default 'none', one of none, add, mul, max, min. how values at
                one position combine.
        """

    def conv2d(
        self,
        x: Operand,
        w: Operand,
        bias: Operand | None = None,
        residual: Operand | None = None,
        *,
        strides: Sequence[Extent] | None = None,
        pads: Sequence[Extent] | None = None,
        dilations: Sequence[Extent] | None = None,
        group: Extent = 1,
        auto_pad: Literal['NOTSET', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] = 'NOTSET',
        act: str = 'none',
        leaky_slope: float = 0.01,
        name: str | None = None,
    ) -> Value:
        """act(convolution + bias + residual); x is NCHW, w is OIHW with I = C / group.

        Operator CONV2D(x, w, bias?, residual?).

        Args:
            strides: ints, default None. per spatial axis; 1.
            pads: ints, default None. begins, then ends; 0.
            dilations: ints, default None. per spatial axis; 1.
            group: int, default 1. channel groups.
            auto_pad: str, default 'NOTSET', one of NOTSET, SAME_UPPER, SAME_LOWER, VALID.
                computes pads from the shapes.
            act: str, default 'none', one of none, relu, gelu, gelu_tanh, silu, sigmoid,
                tanh, leaky_relu, hard_swish, hard_sigmoid, elu, softplus, mish, relu6.
                activation.
            leaky_slope: float, default 0.01. slope of leaky_relu.
        """

    def conv1d(
        self,
        x: Operand,
        w: Operand,
        bias: Operand | None = None,
        *,
        strides: Sequence[Extent] | None = None,
        pads: Sequence[Extent] | None = None,
        dilations: Sequence[Extent] | None = None,
        group: Extent = 1,
        auto_pad: Literal['NOTSET', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] = 'NOTSET',
        act: str = 'none',
        leaky_slope: float = 0.01,
        name: str | None = None,
    ) -> Value:
        """act(convolution + bias); x is NCW, w is OIW with I = C / group.

        Operator CONV1D(x, w, bias?).

        Args:
            strides: ints, default None. per spatial axis; 1.
            pads: ints, default None. begins, then ends; 0.
            dilations: ints, default None. per spatial axis; 1.
            group: int, default 1. channel groups.
            auto_pad: str, default 'NOTSET', one of NOTSET, SAME_UPPER, SAME_LOWER, VALID.
                computes pads from the shapes.
            act: str, default 'none', one of none, relu, gelu, gelu_tanh, silu, sigmoid,
                tanh, leaky_relu, hard_swish, hard_sigmoid, elu, softplus, mish, relu6.
                activation.
            leaky_slope: float, default 0.01. slope of leaky_relu.
        """

    def conv_transpose(
        self,
        x: Operand,
        w: Operand,
        bias: Operand | None = None,
        *,
        strides: Sequence[Extent] | None = None,
        pads: Sequence[Extent] | None = None,
        dilations: Sequence[Extent] | None = None,
        group: Extent = 1,
        auto_pad: Literal['NOTSET', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] = 'NOTSET',
        act: str = 'none',
        leaky_slope: float = 0.01,
        output_padding: Sequence[Extent] | None = None,
        output_shape: Sequence[Extent] | None = None,
        name: str | None = None,
    ) -> Value:
        """act(adjoint of a convolution + bias); w is [C, O / group, ...]; 1 to 3 axes.

        Operator CONV_TRANSPOSE(x, w, bias?).

        Args:
            strides: ints, default None. per spatial axis; 1.
            pads: ints, default None. begins, then ends; 0.
            dilations: ints, default None. per spatial axis; 1.
            group: int, default 1. channel groups.
            auto_pad: str, default 'NOTSET', one of NOTSET, SAME_UPPER, SAME_LOWER, VALID.
                computes pads from the shapes.
            act: str, default 'none', one of none, relu, gelu, gelu_tanh, silu, sigmoid,
                tanh, leaky_relu, hard_swish, hard_sigmoid, elu, softplus, mish, relu6.
                activation.
            leaky_slope: float, default 0.01. slope of leaky_relu.
            output_padding: ints, default None. added at the ends of the output.
            output_shape: ints, default None. spatial extents; computes pads.
        """

    def max_pool(
        self,
        x: Operand,
        *,
        kernel_shape: Sequence[Extent],
        strides: Sequence[Extent] | None = None,
        pads: Sequence[Extent] | None = None,
        dilations: Sequence[Extent] | None = None,
        ceil_mode: bool = False,
        auto_pad: Literal['NOTSET', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] = 'NOTSET',
        name: str | None = None,
    ) -> Value:
        """Maximum over windows; padding never wins; NaN propagates.

        Operator MAX_POOL(x).

        Args:
            kernel_shape: ints, required. window extents.
            strides: ints, default None. per spatial axis; 1.
            pads: ints, default None. begins, then ends; 0.
            dilations: ints, default None. per spatial axis; 1.
            ceil_mode: bool, default False. round the output extent up.
            auto_pad: str, default 'NOTSET', one of NOTSET, SAME_UPPER, SAME_LOWER, VALID.
                computes pads from the shapes.
        """

    def avg_pool(
        self,
        x: Operand,
        *,
        kernel_shape: Sequence[Extent],
        strides: Sequence[Extent] | None = None,
        pads: Sequence[Extent] | None = None,
        dilations: Sequence[Extent] | None = None,
        ceil_mode: bool = False,
        auto_pad: Literal['NOTSET', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] = 'NOTSET',
        count_include_pad: bool = False,
        name: str | None = None,
    ) -> Value:
        """Mean over windows.

        Operator AVG_POOL(x).

        Args:
            kernel_shape: ints, required. window extents.
            strides: ints, default None. per spatial axis; 1.
            pads: ints, default None. begins, then ends; 0.
            dilations: ints, default None. per spatial axis; 1.
            ceil_mode: bool, default False. round the output extent up.
            auto_pad: str, default 'NOTSET', one of NOTSET, SAME_UPPER, SAME_LOWER, VALID.
                computes pads from the shapes.
            count_include_pad: bool, default False. padding counts in the divisor.
        """

    def lp_pool(
        self,
        x: Operand,
        *,
        kernel_shape: Sequence[Extent],
        strides: Sequence[Extent] | None = None,
        pads: Sequence[Extent] | None = None,
        dilations: Sequence[Extent] | None = None,
        ceil_mode: bool = False,
        auto_pad: Literal['NOTSET', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] = 'NOTSET',
        p: Extent = 2,
        name: str | None = None,
    ) -> Value:
        """p-norm over windows.

        Operator LP_POOL(x).

        Args:
            kernel_shape: ints, required. window extents.
            strides: ints, default None. per spatial axis; 1.
            pads: ints, default None. begins, then ends; 0.
            dilations: ints, default None. per spatial axis; 1.
            ceil_mode: bool, default False. round the output extent up.
            auto_pad: str, default 'NOTSET', one of NOTSET, SAME_UPPER, SAME_LOWER, VALID.
                computes pads from the shapes.
            p: int, default 2. exponent of the norm.
        """

    def global_max_pool(self, x: Operand, *, name: str | None = None) -> Value:
        """Maximum over all spatial axes.

        Operator GLOBAL_MAX_POOL(x).
        """

    def global_avg_pool(self, x: Operand, *, name: str | None = None) -> Value:
        """Mean over all spatial axes.

        Operator GLOBAL_AVG_POOL(x).
        """

    def resample(
        self,
        x: Operand,
        places_a: Operand,
        weights_a: Operand | None = None,
        places_b: Operand | None = None,
        weights_b: Operand | None = None,
        *,
        axes: Sequence[Extent],
        name: str | None = None,
    ) -> Value:
        """Sum picked elements along axes: tables [out, taps] of places and weights.

        Operator RESAMPLE(x, places_a, weights_a?, places_b?, weights_b?).

        Args:
            axes: ints, required. one or two axes, in order.
        """

    def resize(
        self,
        x: Operand,
        *,
        scales: Sequence[float] | None = None,
        sizes: Sequence[Extent] | None = None,
        axes: Sequence[Extent] | None = None,
        mode: Literal['nearest', 'linear', 'cubic'] = 'nearest',
        coordinate_transformation_mode: str = 'half_pixel',
        nearest_mode: str = 'round_prefer_floor',
        cubic_coeff_a: float = -0.75,
        exclude_outside: bool = False,
        antialias: bool = False,
        extrapolation_value: float = 0.0,
        roi: Sequence[float] | None = None,
        keep_aspect_ratio_policy: Literal['stretch', 'not_larger', 'not_smaller'] = 'stretch',
        name: str | None = None,
    ) -> Value:
        """Interpolate along axes.

        Operator RESIZE(x).

        Args:
            scales: floats, default None. factor per axis.
            sizes: ints, default None. extent per axis.
            axes: ints, default None. axes named; all when absent.
            mode: str, default 'nearest', one of nearest, linear, cubic. interpolation.
            coordinate_transformation_mode: str, default 'half_pixel', one of half_pixel,
                half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric,
                tf_crop_and_resize. where an output element lies in the input.
            nearest_mode: str, default 'round_prefer_floor', one of round_prefer_floor,
                round_prefer_ceil, floor, ceil. rounding.
            cubic_coeff_a: float, default -0.75. coefficient of cubic.
            exclude_outside: bool, default False. weights outside the input are 0.
            antialias: bool, default False. widen the filter when shrinking.
            extrapolation_value: float, default 0.0. outside of a crop.
            roi: floats, default None. starts, then ends, of tf_crop_and_resize.
            keep_aspect_ratio_policy: str, default 'stretch', one of stretch, not_larger,
                not_smaller. what sizes mean.
        """

    def attention(
        self,
        q: Operand,
        k: Operand,
        v: Operand,
        mask: Operand | None = None,
        kv_len: Operand | None = None,
        q_starts: Operand | None = None,
        k_starts: Operand | None = None,
        *extras: Operand,
        scale: float | None = None,
        is_causal: bool = False,
        query_offset: Extent = 0,
        q_num_heads: Extent | None = None,
        kv_num_heads: Extent | None = None,
        softcap: float = 0.0,
        left_window_size: Extent = -1,
        right_window_size: Extent = -1,
        score: object | None = None,
        lse: bool = False,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """softmax(q k^T * scale + mask) v per head; key heads may be shared; a row without a
                key is 0.

        Operator ATTENTION(q, k, v, mask?, kv_len?, q_starts?, k_starts?, extras*).

        Args:
            scale: float, default None. factor of the scores; 1 / sqrt(head size).
            is_causal: bool, default False. a query sees keys up to its own place.
            query_offset: int, default 0. place of query 0 among the keys (kv_len - Q when
                kv_len is given, K - Q of each packed sequence).
            q_num_heads: int, default None. query heads of rank-3 inputs.
            kv_num_heads: int, default None. key heads of rank-3 inputs.
            softcap: float, default 0.0. scores become cap * tanh(score / cap); 0 = off.
            left_window_size: int, default -1. keys seen before a query; -1 = all.
            right_window_size: int, default -1. keys seen after a query; -1 = all.
            score: expr, default None. what becomes of a score, before the mask: input 0 is
                the score, 1.. extras, at coordinates (sample, head, query, key); a second
                output tells whether the key is allowed.
            lse: bool, default False. also return the log-sum-exp of each row.
        """

    def attention_grad(
        self,
        q: Operand,
        k: Operand,
        v: Operand,
        y: Operand,
        lse: Operand,
        grad_y: Operand,
        mask: Operand | None = None,
        kv_len: Operand | None = None,
        *,
        scale: float | None = None,
        is_causal: bool = False,
        query_offset: Extent = 0,
        left_window_size: Extent = -1,
        right_window_size: Extent = -1,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """gradients of q, k and v (rank 4) of an ATTENTION with result y and log-sum-exps lse
                from that of y.

        Operator ATTENTION_GRAD(q, k, v, y, lse, grad_y, mask?, kv_len?).

        Args:
            scale: float, default None. factor of the scores; 1 / sqrt(head size).
            is_causal: bool, default False. a query sees keys up to its own place.
            query_offset: int, default 0. place of query 0 among the keys (kv_len - Q when
                kv_len is given).
            left_window_size: int, default -1. keys seen before a query; -1 = all.
            right_window_size: int, default -1. keys seen after a query; -1 = all.
        """

    def rotary(
        self,
        x: Operand,
        cos: Operand,
        sin: Operand,
        position_ids: Operand | None = None,
        *,
        interleaved: bool = False,
        num_heads: Extent = 0,
        rotary_embedding_dim: Extent = 0,
        name: str | None = None,
    ) -> Value:
        """Turn pairs of head elements by their position's angle.

        Operator ROTARY(x, cos, sin, position_ids?).

        Args:
            interleaved: bool, default False. pairs are neighbours, not halves.
            num_heads: int, default 0. heads of a rank-3 input.
            rotary_embedding_dim: int, default 0. leading part that turns; 0 = all.
        """

    def lstm(
        self,
        x: Operand,
        W: Operand,
        R: Operand,
        B: Operand | None = None,
        initial_h: Operand | None = None,
        initial_c: Operand | None = None,
        P: Operand | None = None,
        *,
        hidden_size: Extent,
        direction: Literal['forward', 'reverse', 'bidirectional'] = 'forward',
        layout: Extent = 0,
        clip: float | None = None,
        input_forget: bool = False,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """Long short-term memory; outputs all h, last h, last c; gates input, output, forget,
                cell.

        Operator LSTM(x, W, R, B?, initial_h?, initial_c?, P?).

        Args:
            hidden_size: int, required. units.
            direction: str, default 'forward', one of forward, reverse, bidirectional. order
                of time.
            layout: int, default 0. 0: [S, B, I]; 1: [B, S, I].
            clip: float, default None. limit of the gates' arguments.
            input_forget: bool, default False. forget gate = 1 - input gate.
        """

    def gru(
        self,
        x: Operand,
        W: Operand,
        R: Operand,
        B: Operand | None = None,
        initial_h: Operand | None = None,
        *,
        hidden_size: Extent,
        direction: Literal['forward', 'reverse', 'bidirectional'] = 'forward',
        layout: Extent = 0,
        clip: float | None = None,
        linear_before_reset: bool = False,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """Gated recurrent unit; outputs all h, last h; gates update, reset, hidden.

        Operator GRU(x, W, R, B?, initial_h?).

        Args:
            hidden_size: int, required. units.
            direction: str, default 'forward', one of forward, reverse, bidirectional. order
                of time.
            layout: int, default 0. 0: [S, B, I]; 1: [B, S, I].
            clip: float, default None. limit of the gates' arguments.
            linear_before_reset: bool, default False. reset after the product.
        """

    def rnn(
        self,
        x: Operand,
        W: Operand,
        R: Operand,
        B: Operand | None = None,
        initial_h: Operand | None = None,
        *,
        hidden_size: Extent,
        direction: Literal['forward', 'reverse', 'bidirectional'] = 'forward',
        layout: Extent = 0,
        clip: float | None = None,
        activation: Literal['tanh', 'relu', 'sigmoid'] = 'tanh',
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """Plain recurrent layer; outputs all h, last h.

        Operator RNN(x, W, R, B?, initial_h?).

        Args:
            hidden_size: int, required. units.
            direction: str, default 'forward', one of forward, reverse, bidirectional. order
                of time.
            layout: int, default 0. 0: [S, B, I]; 1: [B, S, I].
            clip: float, default None. limit of the gates' arguments.
            activation: str, default 'tanh', one of tanh, relu, sigmoid. of the sum.
        """

    def fused_row(
        self,
        *xs: Operand,
        base: str,
        n_xs: Extent,
        n_extras: Extent,
        prologue: object | None = None,
        epilogue: object | None = None,
        dtype: str,
        axis: Extent | None = None,
        epsilon: float | None = None,
        p: Extent | None = None,
        axes: Sequence[Extent] | None = None,
        keepdims: bool = True,
        noop_with_empty_axes: bool = False,
        name: str | None = None,
    ) -> Value:
        """epilogue(row operator(prologue(xs), extras), more).

        Operator FUSED_ROW(xs*).

        Args:
            base: str, required. the row operator.
            n_xs: int, required. operands that its x is computed from.
            n_extras: int, required. further operands of it (scale, bias).
            prologue: expr, default None. x over the first operands.
            epilogue: expr, default None. over input 0 = its result, then the last operands.
            dtype: dtype, required. element type of the result.
            axis: int, default None. as the row operator.
            epsilon: float, default None. as the row operator.
            p: int, default None. as the row operator.
            axes: ints, default None. as the row operator.
            keepdims: bool, default True. as the row operator.
            noop_with_empty_axes: bool, default False. as the row operator.
        """

    def add_layer_norm(
        self,
        x: Operand,
        residual: Operand,
        scale: Operand,
        bias: Operand | None = None,
        *,
        axis: Extent = -1,
        epsilon: float = 1e-05,
        rounding: str | None = None,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """(x + residual, LAYER_NORM of it).

        Operator ADD_LAYER_NORM(x, residual, scale, bias?).

        Args:
            axis: int, default -1. axis to normalise over.
            epsilon: float, default 1e-05. added to the variance.
            rounding: dtype, default None. element type that the sum is stored in.
        """

    def add_rms_norm(
        self,
        x: Operand,
        residual: Operand,
        scale: Operand,
        *,
        axis: Extent = -1,
        epsilon: float = 1e-05,
        rounding: str | None = None,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """(x + residual, RMS_NORM of it).

        Operator ADD_RMS_NORM(x, residual, scale).

        Args:
            axis: int, default -1. axis to normalise over.
            epsilon: float, default 1e-05. added to the variance.
            rounding: dtype, default None. element type that the sum is stored in.
        """

    def norm_gemm(
        self,
        x: Operand,
        scale: Operand,
        B: Operand,
        shift: Operand | None = None,
        bias: Operand | None = None,
        C: Operand | None = None,
        *extras: Operand,
        norm: Literal['LAYER_NORM', 'RMS_NORM'],
        epsilon: float = 1e-05,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 1.0,
        act: str = 'none',
        leaky_slope: float = 0.01,
        epilogue: object | None = None,
        rows: bool = True,
        rounding: str | None = None,
        name: str | None = None,
    ) -> Any:
        """(GEMM_BIAS_ACT of norm(x), norm(x)); the norm over the last axis.

        Operator NORM_GEMM(x, scale, B, shift?, bias?, C?, extras*).

        Args:
            norm: str, required, one of LAYER_NORM, RMS_NORM. of the rows of x.
            epsilon: float, default 1e-05. added to the variance.
            trans_b: bool, default False. B is stored [N, K].
            alpha: float, default 1.0. factor of the product.
            beta: float, default 1.0. factor of C.
            act: str, default 'none', one of none, relu, gelu, gelu_tanh, silu, sigmoid,
                tanh, leaky_relu, hard_swish, hard_sigmoid, elu, softplus, mish, relu6.
                activation.
            leaky_slope: float, default 0.01. slope of leaky_relu.
            epilogue: expr, default None. replaces the sum and act: input 0 is the sum of
                products, 1 bias, 2 C, 3.. extras; scalars 0 and 1 are alpha and beta; one
                or two outputs.
            rows: bool, default True. the normalised rows are a second output.
            rounding: dtype, default None. element type that the rows are stored in.
        """

    def cross_entropy(
        self,
        x: Operand,
        label: Operand,
        *,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """(log(sum(exp(x))) - x[label] per row, its gradient softmax(x) - one_hot(label)); 0
                for a label outside of the row.

        Operator CROSS_ENTROPY(x, label).
        """

    def quantize_rows(self, x: Operand, *, name: str | None = None) -> tuple[Value, ...]:
        """(x / scale as i8, scale) per row of the last axis, scale = max |x| / 127; a row of
                zeros has scale 1.

        Operator QUANTIZE_ROWS(x).
        """

    def scaled_matmul(
        self,
        A: Operand,
        B: Operand,
        a_scale: Operand | None = None,
        b_scale: Operand | None = None,
        bias: Operand | None = None,
        *extras: Operand,
        output_dtype: str | None = None,
        epilogue: object | None = None,
        name: str | None = None,
    ) -> Value:
        """A B * a_scale * b_scale + bias of 8-bit A and B; sums of integers wrap at 2**32.

        Operator SCALED_MATMUL(A, B, a_scale?, b_scale?, bias?, extras*).

        Args:
            output_dtype: dtype, default None. f32, f16, bf16 or i32; default: i32 for sums
                of integers without scales, else f32.
            epilogue: expr, default None. replaces scales and bias: input 0 is the sum of
                products (i32 or f32), 1 a_scale, 2 b_scale, 3 bias, 4.. extras.
        """

    def matmul_nbits(
        self,
        A: Operand,
        B: Operand,
        scales: Operand,
        zero_points: Operand | None = None,
        bias: Operand | None = None,
        *,
        block_size: Extent,
        bits: Extent = 4,
        act: str = 'none',
        leaky_slope: float = 0.01,
        name: str | None = None,
    ) -> Value:
        """act(A W^T + bias), W = (code - zero_point) * scale of codes two in a byte.

        Operator MATMUL_NBITS(A, B, scales, zero_points?, bias?).

        Args:
            block_size: int, required. weights along K that share a scale.
            bits: int, default 4. of a weight: 4.
            act: str, default 'none', one of none, relu, gelu, gelu_tanh, silu, sigmoid,
                tanh, leaky_relu, hard_swish, hard_sigmoid, elu, softplus, mish, relu6.
                activation.
            leaky_slope: float, default 0.01. slope of leaky_relu.
        """

    def paged_attention(
        self,
        q: Operand,
        k: Operand,
        v: Operand,
        block_table: Operand,
        kv_len: Operand,
        mask: Operand | None = None,
        *,
        scale: float | None = None,
        is_causal: bool = False,
        softcap: float = 0.0,
        left_window_size: Extent = -1,
        right_window_size: Extent = -1,
        score: object | None = None,
        lse: bool = False,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """ATTENTION whose key n of sample b is row n % R of page block_table[b, n // R], pages
                [P, head, R, D].

        Operator PAGED_ATTENTION(q, k, v, block_table, kv_len, mask?).

        Args:
            scale: float, default None. factor of the scores; 1 / sqrt(head size).
            is_causal: bool, default False. a query sees keys up to its own place.
            softcap: float, default 0.0. scores become cap * tanh(score / cap); 0 = off.
            left_window_size: int, default -1. keys seen before a query; -1 = all.
            right_window_size: int, default -1. keys seen after a query; -1 = all.
            score: expr, default None. what becomes of a score, as of ATTENTION, without
                further inputs.
            lse: bool, default False. also return the log-sum-exp of each row.
        """

