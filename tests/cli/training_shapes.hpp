// The layers of well-known networks that tests of plans go through.
#pragma once

#include <string_view>

namespace convgrad::cli {

struct training_shape {
    std::string_view text;
    bool deconv;
};

inline constexpr training_shape training_shapes[] = {
    // ResNet-50
    {R"(mb16ic3ih224oc64oh112kh7sh2ph3n"resnet50:conv1")", false},
    {R"(mb16ic64ih56oc64oh56kh1n"resnet50:res2_1x1a")", false},
    {R"(mb16ic64ih56oc64oh56kh3ph1n"resnet50:res2_3x3*3")", false},
    {R"(mb16ic64ih56oc256oh56kh1n"resnet50:res2_1x1b*4")", false},
    {R"(mb16ic256ih56oc64oh56kh1n"resnet50:res2_1x1c*2")", false},
    {R"(mb16ic256ih56oc128oh56kh1n"resnet50:res3_1x1a")", false},
    {R"(mb16ic128ih56oc128oh28kh3sh2ph1n"resnet50:res3_3x3s2")", false},
    {R"(mb16ic128ih28oc128oh28kh3ph1n"resnet50:res3_3x3*3")", false},
    {R"(mb16ic256ih56oc512oh28kh1sh2n"resnet50:res3_down")", false},
    {R"(mb16ic512ih28oc128oh28kh1n"resnet50:res3_1x1c*3")", false},
    {R"(mb16ic256ih14oc256oh14kh3ph1n"resnet50:res4_3x3*5")", false},
    {R"(mb16ic1024ih14oc256oh14kh1n"resnet50:res4_1x1c*5")", false},
    {R"(mb16ic256ih14oc1024oh14kh1n"resnet50:res4_1x1b*6")", false},
    {R"(mb16ic512ih28oc1024oh14kh1sh2n"resnet50:res4_down")", false},
    {R"(mb16ic512ih14oc512oh7kh3sh2ph1n"resnet50:res5_3x3s2")", false},
    {R"(mb16ic512ih7oc512oh7kh3ph1n"resnet50:res5_3x3*2")", false},
    {R"(mb16ic2048ih7oc512oh7kh1n"resnet50:res5_1x1c*2")", false},
    // VGG-16
    {R"(mb8ic3ih224oc64oh224kh3ph1n"vgg16:conv1_1")", false},
    {R"(mb4ic64ih224oc64oh224kh3ph1n"vgg16:conv1_2")", false},
    {R"(mb8ic256ih56oc256oh56kh3ph1n"vgg16:conv3_2*2")", false},
    {R"(mb8ic512ih14oc512oh14kh3ph1n"vgg16:conv5*3")", false},
    // MobileNet v2
    {R"(g32mb16ic32ih112oc32oh112kh3ph1n"mobilenet2:dw1")", false},
    {R"(g96mb16ic96ih112oc96oh56kh3sh2ph1n"mobilenet2:dw2_s2")", false},
    {R"(g144mb16ic144ih56oc144oh56kh3ph1n"mobilenet2:dw3")", false},
    {R"(g384mb16ic384ih14oc384oh14kh3ph1n"mobilenet2:dw7*4")", false},
    {R"(g960mb16ic960ih7oc960oh7kh3ph1n"mobilenet2:dw14*3")", false},
    {R"(mb16ic24ih56oc144oh56kh1n"mobilenet2:expand3")", false},
    {R"(mb16ic144ih56oc24oh56kh1n"mobilenet2:project3")", false},
    // ResNeXt-50 32x4d
    {R"(g32mb16ic128ih56oc128oh56kh3ph1n"resnext50:g32_c128*3")", false},
    {R"(g32mb16ic256ih28oc256oh28kh3ph1n"resnext50:g32_c256*3")", false},
    {R"(g32mb16ic1024ih7oc1024oh7kh3ph1n"resnext50:g32_c1024*2")", false},
    // DeepLab v3 (dilated)
    {R"(mb4ic512ih33oc512oh33kh3dh1ph2n"deeplab3:res5_d2")", false},
    {R"(mb2ic2048ih33oc256oh33kh3dh11ph12n"deeplab3:aspp_d12")", false},
    // 3D U-Net
    {R"(mb1ic32id64ih64iw64oc64od64oh64ow64kd3kh3kw3pd1ph1pw1n"unet3d:enc1")", false},
    {R"(mb1ic128id32ih32iw32oc128od32oh32ow32kd3kh3kw3pd1ph1pw1n"unet3d:enc2")", false},
    {R"(mb2ic3id16ih112iw112oc64od16oh112ow112kd3kh3kw3pd1ph1pw1n"c3d:conv1a")", false},
    // 1-D: WaveNet, speech
    {R"(mb8ic64iw4096oc128ow4096kw2dw7pw8n"wavenet:d8")", false},
    {R"(mb8ic80iw1500oc512ow1500kw5pw2n"tacotron:conv")", false},
    // DCGAN generator
    {R"(mb32ic512ih4oc256oh8kh4sh2ph1n"dcgan:g2")", true},
    {R"(mb32ic256ih8oc128oh16kh4sh2ph1n"dcgan:g3")", true},
    {R"(mb32ic128ih16oc64oh32kh4sh2ph1n"dcgan:g4")", true},
    {R"(mb32ic64ih32oc3oh64kh4sh2ph1n"dcgan:g5")", true},
    // U-Net decoder
    {R"(mb4ic128ih64oc64oh128kh2sh2n"unet:up4")", true},
    {R"(mb4ic512ih16oc256oh32kh2sh2n"unet:up2")", true},
    // super-resolution, segmentation
    {R"(mb4ic64ih64oc64oh128kh3sh2ph1n"resnet_decoder:3x3s2_outpad1")", true},
    {R"(mb2ic21ih28oc21oh224kh16sh8ph4n"fcn8s:up8")", true},
    // 3-D and 1-D
    {R"(mb1ic64id16ih16iw16oc32od32oh32ow32kd2kh2kw2sd2sh2sw2n"unet3d:up")", true},
    {R"(mb8ic256iw128oc128ow512kw8sw4pw2n"wavegan:up4")", true},
};

}  // namespace convgrad::cli
