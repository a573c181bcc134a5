#include "models.hpp"

#include "simple_layers.hpp"

namespace convgrad::train {

std::string_view to_string(model_kind kind) {
    return kind == model_kind::classifier ? "classifier" : "autoencoder";
}

network &network::add_convolution(const conv_shape &shape) {
    auto made = std::make_unique<conv_layer>(shape, type_, where_, *random_, convolutions_.empty());
    convolutions_.push_back(made.get());
    layers_.push_back(std::move(made));
    return *this;
}

network &network::add_block(const conv_shape &shape) {
    return add_convolution(shape).add<batch_norm>(shape.name, shape.out).add<relu>();
}

const values &network::forward(const values &src, phase when) {
    const values *x = &src;
    for (const auto &l : layers_) x = &l->forward(*x, when);
    return *x;
}

void network::backward(const values &diff_dst) {
    const values *d = &diff_dst;
    for (auto l = layers_.rbegin(); l != layers_.rend(); ++l) d = &(*l)->backward(*d);
}

std::vector<parameter *> network::parameters() const {
    std::vector<parameter *> list;
    for (const auto &l : layers_)
        for (parameter *p : l->parameters()) list.push_back(p);
    return list;
}

std::vector<std::vector<float> *> network::statistics() const {
    std::vector<std::vector<float> *> list;
    for (const auto &l : layers_)
        for (auto *s : l->statistics()) list.push_back(s);
    return list;
}

std::vector<op_time> network::times() const {
    std::vector<op_time> list;
    for (const conv_layer *c : convolutions_)
        for (op_time &t : c->times()) list.push_back(std::move(t));
    return list;
}

transfer_time network::transfers() const {
    transfer_time sum;
    for (const conv_layer *c : convolutions_) sum.add(c->transfers());
    return sum;
}

network make_classifier(dim classes, data_type type, const place &where, random_numbers &random) {
    network n(type, where, random);
    n.add_block({.name = "stem", .in = 1, .out = 32, .kernel = 3, .pad = 1});
    n.add_block({.name = "depthwise", .in = 32, .out = 32, .kernel = 3, .pad = 1, .groups = 32});
    n.add_block({.name = "pointwise", .in = 32, .out = 64});
    n.add_block({.name = "strided1", .in = 64, .out = 64, .kernel = 3, .stride = 2, .pad = 1});
    n.add_block({.name = "grouped", .in = 64, .out = 128, .kernel = 3, .pad = 1, .groups = 4});
    n.add_block({.name = "strided2", .in = 128, .out = 128, .kernel = 3, .stride = 2, .pad = 1});
    n.add<average_pool>();
    n.add_convolution({.name = "head", .in = 128, .out = classes, .bias = true});
    return n;
}

network make_autoencoder(data_type type, const place &where, random_numbers &random) {
    network n(type, where, random);
    n.add_block({.name = "encode1", .in = 1, .out = 32, .kernel = 3, .stride = 2, .pad = 1});
    n.add_block({.name = "encode2", .in = 32, .out = 64, .kernel = 3, .stride = 2, .pad = 1});
    n.add_convolution({.name = "code", .in = 64, .out = 4, .bias = true});
    n.add_block({.name = "decode1", .in = 4, .out = 64, .kernel = 3, .pad = 1, .transposed = true});
    n.add_block({.name = "decode2",
        .in = 64,
        .out = 64,
        .kernel = 4,
        .stride = 2,
        .pad = 1,
        .transposed = true});
    n.add_block({.name = "decode3",
        .in = 64,
        .out = 32,
        .kernel = 4,
        .stride = 2,
        .pad = 1,
        .transposed = true});
    n.add_convolution({.name = "pixels",
        .in = 32,
        .out = 1,
        .kernel = 3,
        .pad = 1,
        .transposed = true,
        .bias = true});
    n.add<sigmoid>();
    return n;
}

}  // namespace convgrad::train
