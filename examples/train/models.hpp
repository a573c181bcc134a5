// The two networks.
#pragma once

#include <memory>

#include "conv_layer.hpp"

namespace convgrad::train {

enum class model_kind : std::uint8_t { classifier, autoencoder };
std::string_view to_string(model_kind kind);

class network {
public:
    network(data_type type, const place &where, random_numbers &random)
        : type_(type), where_(where), random_(&random) {}

    template <typename Layer, typename... Arguments>
    network &add(Arguments &&...arguments) {
        layers_.push_back(std::make_unique<Layer>(std::forward<Arguments>(arguments)...));
        return *this;
    }
    network &add_convolution(const conv_shape &shape);
    /// A convolution, normalised, then ReLU.
    network &add_block(const conv_shape &shape);

    /// `src` must live until backward().
    const values &forward(const values &src, phase when);
    void backward(const values &diff_dst);
    [[nodiscard]] std::vector<parameter *> parameters() const;
    [[nodiscard]] std::vector<std::vector<float> *> statistics() const;
    /// Of all convolutions, in order.
    [[nodiscard]] std::vector<op_time> times() const;
    [[nodiscard]] transfer_time transfers() const;

private:
    data_type type_;
    place where_;
    random_numbers *random_;  // for initial weights, while the network is built
    std::vector<std::unique_ptr<layer>> layers_;
    std::vector<const conv_layer *> convolutions_;
};

/// Scores for each class: a stem, a depthwise and a 1×1 layer, two strided ones, a grouped one and
/// a 1×1 head.
network make_classifier(dim classes, data_type type, const place &where, random_numbers &random);

/// Images to images of the same size through 16 times fewer pixels. Height and width must be
/// multiples of 4.
network make_autoencoder(data_type type, const place &where, random_numbers &random);

}  // namespace convgrad::train
