// Fourier transforms of any length and of up to three dimensions, in double.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace sapwood_cuda {

typedef std::complex<double> Wave;

// exp(-2 pi i k / n).
inline Wave root_of_unity(int64_t k, int64_t n) { return std::polar(1.0, -2 * M_PI * double(k) / double(n)); }

// The transform of one length: sum over j of x[j] exp(-2 pi i j k / n).
class Fourier {
  public:
    explicit Fourier(int64_t n) : n_(n) {
        for (size_ = 1; size_ < n; size_ *= 2) {}
        const bool is_power = size_ == n;
        if (!is_power) size_ *= 2; // the product of two sequences of this length
        for (int64_t k = 0; k < size_ / 2; k++) roots_.push_back(root_of_unity(k, size_));
        if (is_power) return;
        // Bluestein: j k = (j² + k² - (k - j)²) / 2, so the transform is a convolution with a chirp.
        chirp_.resize(size_t(n)), response_.resize(size_t(size_));
        for (int64_t k = 0; k < n; k++) {
            const int64_t square = int64_t(__int128(k) * k % (2 * n)); // exact, unlike the sine of a large angle
            chirp_[size_t(k)] = root_of_unity(square, 2 * n);
            response_[size_t(k)] = std::conj(chirp_[size_t(k)]);
            if (k) response_[size_t(size_ - k)] = response_[size_t(k)];
        }
        by_halves(response_.data());
    }
    void run(Wave *x) const {
        if (chirp_.empty()) return by_halves(x);
        std::vector<Wave> padded(size_t(size_), Wave(0));
        for (size_t k = 0; k < size_t(n_); k++) padded[k] = x[k] * chirp_[k];
        by_halves(padded.data());
        for (size_t k = 0; k < size_t(size_); k++) padded[k] = std::conj(padded[k] * response_[k]);
        by_halves(padded.data()); // of conjugates: the inverse
        for (size_t k = 0; k < size_t(n_); k++) x[k] = std::conj(padded[k]) / double(size_) * chirp_[k];
    }

  private:
    void by_halves(Wave *x) const {
        for (int64_t i = 1, j = 0; i < size_; i++) {
            int64_t bit = size_ / 2;
            for (; j & bit; bit /= 2) j ^= bit;
            j ^= bit;
            if (i < j) std::swap(x[i], x[j]);
        }
        for (int64_t half = 1; half < size_; half *= 2)
            for (int64_t start = 0; start < size_; start += 2 * half)
                for (int64_t k = 0; k < half; k++) {
                    Wave &a = x[start + k], &b = x[start + k + half];
                    const Wave w = roots_[size_t(k * (size_ / (2 * half)))];
                    const Wave turned(w.real() * b.real() - w.imag() * b.imag(), w.real() * b.imag() + w.imag() * b.real());
                    b = a - turned, a += turned;
                }
    }

    int64_t n_, size_ = 1;
    std::vector<Wave> roots_, chirp_, response_;
};

// Transforms an array of several dimensions, the last of which is contiguous, in place and without a factor.
class FourierOfArrays {
  public:
    void run(std::vector<Wave> &x, const std::vector<int64_t> &shape, bool inverse) {
        if (inverse) conjugate_all(x);
        int64_t stride = 1;
        for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) along(x, shape[axis], stride);
        if (inverse) conjugate_all(x);
    }

  private:
    static void conjugate_all(std::vector<Wave> &x) {
        for (Wave &each : x) each = std::conj(each);
    }
    void along(std::vector<Wave> &x, int64_t n, int64_t stride) {
        const Fourier &fourier = lengths_.try_emplace(n, n).first->second;
        std::vector<Wave> line(static_cast<size_t>(n));
        for (int64_t start = 0; start < int64_t(x.size()); start += stride * n)
            for (int64_t at = start; at < start + stride; at++) {
                for (int64_t k = 0; k < n; k++) line[size_t(k)] = x[size_t(at + k * stride)];
                fourier.run(line.data());
                for (int64_t k = 0; k < n; k++) x[size_t(at + k * stride)] = line[size_t(k)];
            }
    }

    std::map<int64_t, Fourier> lengths_;
};

} // namespace sapwood_cuda
