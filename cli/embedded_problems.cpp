#include "embedded_problems.hpp"

namespace convgrad::cli {
namespace {

constexpr embedded_problem kinds[] = {
    // Dense, unit stride.
    {R"(mb2ic32ih14oc48kh3ph1n"dense:3x3")", false},
    {R"(mb1ic17ih13iw11oc19kh3kw2ph1pw1n"dense:odd_sizes")", false},
    {R"(mb3ic64ih7oc33kh1n"dense:1x1")", false},
    {R"(mb2ic16ih9oc16kh5ph4n"dense:5x5_full_padding")", false},
    {R"(mb1ic1ih6oc1kh3ph1n"dense:one_channel")", false},
    {R"(mb1ic5ih4oc7kh3ph5n"dense:pad_beyond_kernel")", false},
    {R"(mb2ic20ih5oc24kh5n"dense:one_output_pixel")", false},
    // Stems: few input channels.
    {R"(mb2ic3ih32oc24kh7sh2ph3n"stem:7x7s2")", false},
    {R"(mb2ic3ih18iw17oc16kh3ph1n"stem:3x3")", false},
    // Strided.
    {R"(mb2ic24ih15oc40kh3sh2ph1n"strided:3x3s2")", false},
    {R"(mb2ic32ih14oc16kh1sh2n"strided:1x1s2")", false},
    {R"(mb1ic18ih16iw19oc17kh3kw3sh2sw3ph1pw0n"strided:remainders")", false},
    {R"(mb2ic16ih13oc16kh2sh3n"strided:beyond_kernel")", false},
    // Dilated.
    {R"(mb2ic16ih17oc32kh3dh1ph2n"dilated:d2")", false},
    {R"(mb1ic20ih19oc12kh3sh2dh2ph3n"dilated:d3s2")", false},
    // Grouped and depthwise.
    {R"(g4mb2ic32ih10oc32kh3ph1n"grouped:4x8")", false},
    {R"(g3mb2ic15ih9oc12kh3sh2ph1n"grouped:odd")", false},
    {R"(g32mb2ic128ih8oc128kh3ph1n"grouped:32x4")", false},
    {R"(g32mb2ic32ih12oc32kh3ph1n"depthwise:3x3")", false},
    {R"(g32mb2ic32ih7oc32kh3ph1n"depthwise:7x7")", false},
    {R"(g19mb2ic19ih13oc19kh5sh2ph2n"depthwise:5x5s2")", false},
    {R"(g8mb2ic8ih9oc16kh3ph1n"depthwise:two_outputs")", false},
    // No channels.
    {R"(mb2ic24ih5oc0kh3n"empty:no_outputs")", false},
    {R"(mb2ic0ih5oc24kh3ph1n"empty:no_inputs")", false},
    {R"(mb2ic0ih5oc24kh3sh2n"empty:deconv")", true},
    // One and three axes.
    {R"(mb3ic24iw50oc32kw3pw1n"1d:k3")", false},
    {R"(mb2ic16iw64oc16kw2dw7pw8ow64n"1d:dilated_causal")", false},
    {R"(mb1ic2iw65700oc3kw65600n"1d:long")", false},
    {R"(mb1ic16id6ih7iw8oc16kd3kh3kw3pd1ph1pw1n"3d:3x3x3")", false},
    {R"(mb1ic8id9oc12kd3sd2pd1n"3d:cube_s2")", false},
    // Transposed.
    {R"(mb2ic32ih7oc24kh4sh2ph1n"deconv:4x4s2")", true},
    {R"(mb2ic16ih9oc16oh18kh3sh2ph1n"deconv:output_padding")", true},
    {R"(mb2ic32ih6oc16kh2sh2n"deconv:2x2s2")", true},
    {R"(mb1ic17ih6iw5oc13kh3kw3ph1pw1n"deconv:odd_sizes")", true},
    {R"(mb1ic5ih5oc5kh8sh4ph2n"deconv:upsample4")", true},
    {R"(g4mb2ic16ih6oc24kh3sh2ph1n"deconv:grouped")", true},
    {R"(g16mb2ic16ih6oc16kh4sh2ph1n"deconv:depthwise")", true},
    {R"(mb2ic16ih6oc16kh3dh1sh2ph2n"deconv:dilated")", true},
    {R"(mb2ic32iw16oc16kw8sw4pw2n"deconv:1d")", true},
    {R"(mb1ic16id4oc8kd2sd2n"deconv:3d")", true},
};

constexpr embedded_problem layers[] = {
    {R"(mb16ic3ih224oc64oh112kh7sh2ph3n"resnet50:conv1")", false},
    {R"(mb16ic64ih56oc64oh56kh3ph1n"resnet50:res2_3x3*3")", false},
    {R"(mb16ic128ih56oc128oh28kh3sh2ph1n"resnet50:res3_3x3s2")", false},
    {R"(mb16ic256ih14oc256oh14kh3ph1n"resnet50:res4_3x3*5")", false},
    {R"(mb16ic256ih14oc1024oh14kh1n"resnet50:res4_1x1b*6")", false},
    {R"(g144mb16ic144ih56oc144oh56kh3ph1n"mobilenet2:dw3")", false},
    {R"(g32mb16ic256ih28oc256oh28kh3ph1n"resnext50:g32_c256*3")", false},
    {R"(mb4ic512ih33oc512oh33kh3dh1ph2n"deeplab3:res5_d2")", false},
    {R"(mb1ic128id32oc128kd3pd1n"unet3d:enc2")", false},
    {R"(mb8ic80iw1500oc512ow1500kw5pw2n"tacotron:conv")", false},
    {R"(mb32ic256ih8oc128oh16kh4sh2ph1n"dcgan:g3")", true},
    {R"(mb4ic512ih16oc256oh32kh2sh2n"unet:up2")", true},
};

constexpr embedded_problem training_shapes[] = {
    // Stems, and the first layers of generators.
    {R"(mb16ic3ih224oc64kh7sh2ph3n"stem:7x7s2")", false},
    {R"(mb16ic3ih224oc32kh3sh2ph1n"stem:3x3s2")", false},
    {R"(mb16ic3ih224oc96kh4sh4n"stem:4x4s4")", false},
    {R"(mb16ic3ih227oc64kh11sh4ph2n"stem:11x11s4")", false},
    {R"(mb8ic1ih28oc32kh3ph1n"stem:one_channel")", false},
    {R"(mb1ic3id16oc64kd3pd1n"stem:3d")", false},
    // Dense.
    {R"(mb16ic64ih56oc64kh3ph1n"dense:3x3")", false},
    {R"(mb16ic256ih14oc256kh3ph1n"dense:3x3_small")", false},
    {R"(mb16ic512ih7oc512kh3ph1n"dense:3x3_7x7")", false},
    {R"(mb16ic128ih56oc128kh3sh2ph1n"dense:3x3s2")", false},
    {R"(mb16ic64ih56oc256kh1n"dense:1x1")", false},
    {R"(mb16ic256ih56oc512kh1sh2n"dense:1x1s2")", false},
    {R"(mb16ic24ih56oc144kh1n"dense:expand")", false},
    {R"(mb4ic512ih33oc256kh3dh11ph12n"dense:dilated")", false},
    {R"(mb1ic32id32oc64kd3pd1n"dense:3d")", false},
    {R"(mb8ic80iw1500oc512kw5pw2n"dense:1d")", false},
    {R"(mb4ic64iw4000oc64kw2dw7pw8ow4000n"dense:1d_dilated")", false},
    // Depthwise and grouped.
    {R"(g32mb16ic32ih112oc32kh3ph1n"depthwise:3x3")", false},
    {R"(g144mb16ic144ih56oc144kh3sh2ph1n"depthwise:3x3s2")", false},
    {R"(g576mb16ic576ih14oc576kh3ph1n"depthwise:small")", false},
    {R"(g96mb8ic96ih56oc96kh7ph3n"depthwise:7x7")", false},
    {R"(g32mb8ic32ih28oc64kh3ph1n"depthwise:multiplier")", false},
    {R"(g64mb4ic64iw1000oc64kw3pw1n"depthwise:1d")", false},
    {R"(g16mb1ic16id32oc16kd3pd1n"depthwise:3d")", false},
    {R"(g32mb16ic128ih56oc128kh3ph1n"grouped:32x4")", false},
    {R"(g32mb16ic256ih28oc256kh3sh2ph1n"grouped:32x8s2")", false},
    {R"(g32mb16ic1024ih7oc1024kh3ph1n"grouped:32x32")", false},
    {R"(g3mb8ic240ih28oc60kh1n"grouped:1x1")", false},
    // Transposed.
    {R"(mb32ic512ih4oc256kh4sh2ph1n"transposed:4x4s2")", true},
    {R"(mb32ic64ih32oc3kh4sh2ph1n"transposed:3_outputs")", true},
    {R"(mb4ic512ih16oc256kh2sh2n"transposed:2x2s2")", true},
    {R"(mb4ic64ih64oc64oh128kh3sh2ph1n"transposed:output_padding")", true},
    {R"(mb1ic21ih70oc21kh16sh8ph4n"transposed:upsample8")", true},
    {R"(g64mb4ic64ih28oc64kh4sh2ph1n"transposed:depthwise")", true},
    {R"(mb1ic64id16oc32kd2sd2n"transposed:3d")", true},
    {R"(mb8ic256iw256oc128kw25sw4pw11ow1024n"transposed:1d")", true},
};

}  // namespace

std::span<const embedded_problem> embedded_problems(embedded_set set) {
    if (set == embedded_set::bench) return layers;
    if (set == embedded_set::scan) return training_shapes;
    return kinds;
}

}  // namespace convgrad::cli
