// A small state as packets of 16 bytes: three words and a tag that says which state it is. Words that
// the state leaves over hold the tag, too, and are looked at: ptxas makes two 4-byte loads of a
// 16-byte one of which only two words are used, and those may see two states.
#pragma once

#include <ge2/tile/words.cuh>

namespace ge2 {

template <typename State>
struct Packets {
    static constexpr int kWords = static_cast<int>(sizeof(State) / 4);
    static constexpr int kCount = (kWords + 2) / 3;

    uint4 packet[kCount];

    Packets() = default;
    Packets(const State& state, unsigned tag) {
        const Words<State> words{state};
        auto word = [&](int w) { return w < kWords ? words.word[w < kWords ? w : 0] : tag; };
#pragma unroll
        for (int p = 0; p < kCount; ++p)
            packet[p] = uint4{word(3 * p), word(3 * p + 1), word(3 * p + 2), tag};
    }

    bool is_of(unsigned tag) const {
        bool all = true;
#pragma unroll
        for (int p = 0; p < kCount; ++p) {
            all = all && packet[p].w == tag;
            all = all && (3 * p + 1 < kWords || packet[p].y == tag);
            all = all && (3 * p + 2 < kWords || packet[p].z == tag);
        }
        return all;
    }

    State state() const {
        unsigned word[3 * kCount];
#pragma unroll
        for (int p = 0; p < kCount; ++p) {
            word[3 * p] = packet[p].x;
            word[3 * p + 1] = packet[p].y;
            word[3 * p + 2] = packet[p].z;
        }
        Words<State> words{State{}};
#pragma unroll
        for (int w = 0; w < kWords; ++w) words.word[w] = word[w];
        return words.value;
    }
};

}  // namespace ge2
