// Any small struct as 32-bit words, for shuffles.
#pragma once

namespace ge2 {

template <typename T>
union Words {
    static_assert(sizeof(T) % 4 == 0, "shuffled values consist of 32-bit words");
    T value;
    unsigned word[sizeof(T) / 4];
};

// The value of another lane: lane ^ mask.
template <typename T>
inline T shuffle_xor(const T& value, int mask) {
    Words<T> words{value};
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 4); ++i)
        words.word[i] = __shfl_xor_sync(0xffffffffu, words.word[i], mask);
    return words.value;
}

template <typename T>
inline T choose(bool condition, const T& yes, const T& no) {
    Words<T> a{yes};
    const Words<T> b{no};
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 4); ++i)
        a.word[i] = condition ? a.word[i] : b.word[i];
    return a.value;
}

}  // namespace ge2
