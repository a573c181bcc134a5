// benchdnn's problem syntax: what is read, what is worked out, what is refused and how.
#include "problem_string.hpp"

#include <gtest/gtest.h>

namespace convgrad::cli {
namespace {

problem_string conv(std::string_view text) {
    return parse_problem(text, false);
}
problem_string deconv(std::string_view text) {
    return parse_problem(text, true);
}

void expect_axis(const spatial &a, dim in, dim out, dim kernel, dim stride, dim dilation, dim pad) {
    EXPECT_EQ(a.in, in);
    EXPECT_EQ(a.out, out);
    EXPECT_EQ(a.kernel, kernel);
    EXPECT_EQ(a.stride, stride);
    EXPECT_EQ(a.dilation, dilation);
    EXPECT_EQ(a.pad, pad);
}

TEST(problem_string, every_part) {
    const auto p =
        conv("g2mb3_ic4id5ih6iw7_oc8od3oh4ow9_kd3kh2kw1_sd2sh3sw1_dd0dh1dw2_pd1ph3pw1_nname");
    EXPECT_EQ(p.rank, 3);
    EXPECT_EQ(p.groups, 2);
    EXPECT_EQ(p.mb, 3);
    EXPECT_EQ(p.ic, 4);
    EXPECT_EQ(p.oc, 8);
    expect_axis(p.x[0], 5, 3, 3, 2, 0, 1);
    expect_axis(p.x[1], 6, 4, 2, 3, 1, 3);
    expect_axis(p.x[2], 7, 9, 1, 1, 2, 1);
    EXPECT_EQ(p.name, "name");
    EXPECT_EQ(p.count, 1);
}

TEST(problem_string, defaults) {
    const auto p = conv("ic3ih5oc4kh3");
    EXPECT_FALSE(p.deconv);
    EXPECT_EQ(p.groups, 1);
    EXPECT_EQ(p.mb, 2);
    EXPECT_EQ(p.rank, 2);
    expect_axis(p.x[0], 1, 1, 1, 1, 0, 0);
    expect_axis(p.x[1], 5, 3, 3, 1, 0, 0);
    expect_axis(p.x[2], 5, 3, 3, 1, 0, 0);
    EXPECT_EQ(p.name, "");
}

TEST(problem_string, order_and_underscores_do_not_matter) {
    const auto p = conv("ic16ih9oc8kh3sh2ph1mb4g2");
    EXPECT_EQ(p, conv("g2_mb4__oc8_kh3ph1_ih9_sh2_ic16_"));
    EXPECT_EQ(p, conv("_g2mb4ic16ih9oc8oh5kh3sh2ph1"));
    EXPECT_EQ(conv("ic1ic3ih5oc4kh3"), conv("ic3ih5oc4kh3"));  // the last one holds
}

TEST(problem_string, missing_axes_take_the_one_before) {
    const auto square = conv("ic3ih9oc4kh3sh2dh1ph2");
    EXPECT_EQ(square.rank, 2);
    EXPECT_EQ(square.x[1], square.x[2]);
    const auto cube = conv("ic3id9oc4kd3sd2pd1");
    EXPECT_EQ(cube.rank, 3);
    EXPECT_EQ(cube.x[0], cube.x[1]);
    EXPECT_EQ(cube.x[0], cube.x[2]);
    expect_axis(cube.x[2], 9, 5, 3, 2, 0, 1);
    const auto line = conv("ic3iw9oc4kw3");
    EXPECT_EQ(line.rank, 1);
    expect_axis(line.x[1], 1, 1, 1, 1, 0, 0);
    expect_axis(line.x[2], 9, 7, 3, 1, 0, 0);
}

TEST(problem_string, axis_with_input_and_kernel_stands_alone) {
    // As in benchdnn: iw and kw are there, so stride and pad are the defaults, not those of h.
    const auto p = conv("ic3ih9iw11oc4kh3kw5sh2ph1");
    expect_axis(p.x[1], 9, 5, 3, 2, 0, 1);
    expect_axis(p.x[2], 11, 7, 5, 1, 0, 0);
}

TEST(problem_string, incomplete_width_is_filled_from_height) {
    const auto p = conv("ic3ih9iw12oc4kh3sh2ph1");
    expect_axis(p.x[2], 12, 6, 3, 2, 0, 1);
    EXPECT_EQ(conv("ic3ih9oc4oh5kh3kw3sh2ph1"), conv("ic3ih9oc4oh5kh3sh2ph1"));
}

TEST(problem_string, zero_means_left_out_where_benchdnn_says_so) {
    EXPECT_EQ(conv("ic3ih9oc4oh0kh3"), conv("ic3ih9oc4kh3"));
    EXPECT_EQ(conv("ic3id0ih9iw0oc4kh3pd0pw0"), conv("ic3ih9oc4kh3"));
}

TEST(problem_string, pad_from_output_size) {
    expect_axis(conv("ic3ih9oc4oh9kh3").x[1], 9, 9, 3, 1, 0, 1);
    expect_axis(conv("ic3ih8oc4oh4kh3sh2").x[1], 8, 4, 3, 2, 0, 0);  // (6 − 8 + 3) / 2
    expect_axis(conv("ic3ih224oc4oh112kh1sh2").x[1], 224, 112, 1, 2, 0, 0);
    expect_axis(deconv("ic3ih4oc4oh8kh4sh2").x[1], 4, 8, 4, 2, 0, 1);
}

TEST(problem_string, kernel_too_large_by_less_than_a_stride) {
    const auto p = conv("ic3ih5oc4kh6sh2");
    expect_axis(p.x[1], 5, 1, 6, 2, 0, 0);
    EXPECT_EQ(end_pad(p.x[1], false), 1);
}

TEST(problem_string, transposed_sizes) {
    const auto p = deconv("mb32ic512ih4oc256kh4sh2ph1");
    EXPECT_TRUE(p.deconv);
    expect_axis(p.x[1], 4, 8, 4, 2, 0, 1);
    EXPECT_EQ(end_pad(p.x[1], true), 1);
    const auto excess = deconv("mb4ic64ih64oc64oh128kh3sh2ph1");
    EXPECT_EQ(end_pad(excess.x[1], true), 0);
    EXPECT_EQ(end_pad(deconv("ic1ih4oc1oh9kh3sh2ph0").x[1], true), 0);
    EXPECT_EQ(end_pad(deconv("ic1ih4oc1oh10kh3sh2ph0").x[1], true), -1);
    expect_axis(deconv("ic3ih5oc4kh3sh2dh2ph1").x[1], 5, 13, 3, 2, 2, 1);
}

TEST(problem_string, end_pads) {
    EXPECT_EQ(end_pad(conv("ic3ih224oc64oh112kh7sh2ph3").x[1], false), 2);
    EXPECT_EQ(end_pad(conv("ic3ih224oc64oh112kh1sh2").x[1], false), -1);
    EXPECT_EQ(end_pad(conv("ic64iw4096oc128ow4096kw2dw7pw8").x[2], false), 0);
}

TEST(problem_string, empty_batch_and_channels) {
    EXPECT_EQ(conv("mb0ic3ih5oc4kh3").mb, 0);
    EXPECT_EQ(conv("ic0ih5oc4kh3").ic, 0);
    EXPECT_EQ(conv("ic4ih5oc0kh3").oc, 0);
}

TEST(problem_string, names) {
    EXPECT_EQ(conv("ic3ih5oc4kh3n\"resnet:conv1\"").name, "resnet:conv1");
    EXPECT_EQ(conv("ic3ih5oc4kh3nresnet:conv1").name, "resnet:conv1");
    EXPECT_EQ(conv("ic3ih5oc4kh3_n\"a_b n ih7\"").name, "a_b n ih7");
    EXPECT_EQ(conv("ic3ih5oc4kh3n").name, "");
    for (const char *text : {"ic3ih5oc4kh3n\"x*3\"", "ic3ih5oc4kh3n\"x\"*3", "ic3ih5oc4kh3nx*3"}) {
        EXPECT_EQ(conv(text).name, "x*3") << text;
        EXPECT_EQ(conv(text).count, 3) << text;
    }
    EXPECT_EQ(conv("ic3ih5oc4kh3n\"*2\"").count, 2);
    for (const char *text :
        {"ic3ih5oc4kh3nx*", "ic3ih5oc4kh3nx*0", "ic3ih5oc4kh3nx*y", "ic3ih5oc4kh3nx*3a"})
        EXPECT_EQ(conv(text).count, 1) << text;
}

// The training shapes that the project is measured on.
constexpr const char *convolutions[] = {
    R"(mb16ic3ih224oc64oh112kh7sh2ph3n"resnet50:conv1")",
    R"(mb16ic64ih56oc64oh56kh1n"resnet50:res2_1x1a")",
    R"(mb16ic64ih56oc64oh56kh3ph1n"resnet50:res2_3x3*3")",
    R"(mb16ic64ih56oc256oh56kh1n"resnet50:res2_1x1b*4")",
    R"(mb16ic256ih56oc64oh56kh1n"resnet50:res2_1x1c*2")",
    R"(mb16ic256ih56oc128oh56kh1n"resnet50:res3_1x1a")",
    R"(mb16ic128ih56oc128oh28kh3sh2ph1n"resnet50:res3_3x3s2")",
    R"(mb16ic128ih28oc128oh28kh3ph1n"resnet50:res3_3x3*3")",
    R"(mb16ic256ih56oc512oh28kh1sh2n"resnet50:res3_down")",
    R"(mb16ic512ih28oc128oh28kh1n"resnet50:res3_1x1c*3")",
    R"(mb16ic256ih14oc256oh14kh3ph1n"resnet50:res4_3x3*5")",
    R"(mb16ic1024ih14oc256oh14kh1n"resnet50:res4_1x1c*5")",
    R"(mb16ic256ih14oc1024oh14kh1n"resnet50:res4_1x1b*6")",
    R"(mb16ic512ih28oc1024oh14kh1sh2n"resnet50:res4_down")",
    R"(mb16ic512ih14oc512oh7kh3sh2ph1n"resnet50:res5_3x3s2")",
    R"(mb16ic512ih7oc512oh7kh3ph1n"resnet50:res5_3x3*2")",
    R"(mb16ic2048ih7oc512oh7kh1n"resnet50:res5_1x1c*2")",
    R"(mb8ic3ih224oc64oh224kh3ph1n"vgg16:conv1_1")",
    R"(mb4ic64ih224oc64oh224kh3ph1n"vgg16:conv1_2")",
    R"(mb8ic256ih56oc256oh56kh3ph1n"vgg16:conv3_2*2")",
    R"(mb8ic512ih14oc512oh14kh3ph1n"vgg16:conv5*3")",
    R"(g32mb16ic32ih112oc32oh112kh3ph1n"mobilenet2:dw1")",
    R"(g96mb16ic96ih112oc96oh56kh3sh2ph1n"mobilenet2:dw2_s2")",
    R"(g144mb16ic144ih56oc144oh56kh3ph1n"mobilenet2:dw3")",
    R"(g384mb16ic384ih14oc384oh14kh3ph1n"mobilenet2:dw7*4")",
    R"(g960mb16ic960ih7oc960oh7kh3ph1n"mobilenet2:dw14*3")",
    R"(mb16ic24ih56oc144oh56kh1n"mobilenet2:expand3")",
    R"(mb16ic144ih56oc24oh56kh1n"mobilenet2:project3")",
    R"(g32mb16ic128ih56oc128oh56kh3ph1n"resnext50:g32_c128*3")",
    R"(g32mb16ic256ih28oc256oh28kh3ph1n"resnext50:g32_c256*3")",
    R"(g32mb16ic1024ih7oc1024oh7kh3ph1n"resnext50:g32_c1024*2")",
    R"(mb4ic512ih33oc512oh33kh3dh1ph2n"deeplab3:res5_d2")",
    R"(mb2ic2048ih33oc256oh33kh3dh11ph12n"deeplab3:aspp_d12")",
    R"(mb1ic32id64ih64iw64oc64od64oh64ow64kd3kh3kw3pd1ph1pw1n"unet3d:enc1")",
    R"(mb1ic128id32ih32iw32oc128od32oh32ow32kd3kh3kw3pd1ph1pw1n"unet3d:enc2")",
    R"(mb2ic3id16ih112iw112oc64od16oh112ow112kd3kh3kw3pd1ph1pw1n"c3d:conv1a")",
    R"(mb8ic64iw4096oc128ow4096kw2dw7pw8n"wavenet:d8")",
    R"(mb8ic80iw1500oc512ow1500kw5pw2n"tacotron:conv")",
};
constexpr const char *transposed[] = {
    R"(mb32ic512ih4oc256oh8kh4sh2ph1n"dcgan:g2")",
    R"(mb32ic256ih8oc128oh16kh4sh2ph1n"dcgan:g3")",
    R"(mb32ic128ih16oc64oh32kh4sh2ph1n"dcgan:g4")",
    R"(mb32ic64ih32oc3oh64kh4sh2ph1n"dcgan:g5")",
    R"(mb4ic128ih64oc64oh128kh2sh2n"unet:up4")",
    R"(mb4ic512ih16oc256oh32kh2sh2n"unet:up2")",
    R"(mb4ic64ih64oc64oh128kh3sh2ph1n"resnet_decoder:3x3s2_outpad1")",
    R"(mb2ic21ih28oc21oh224kh16sh8ph4n"fcn8s:up8")",
    R"(mb1ic64id16ih16iw16oc32od32oh32ow32kd2kh2kw2sd2sh2sw2n"unet3d:up")",
    R"(mb8ic256iw128oc128ow512kw8sw4pw2n"wavegan:up4")",
};

TEST(problem_string, round_trip) {
    const auto check = [](const std::string &text, bool transposed_problem) {
        const auto p = parse_problem(text, transposed_problem);
        EXPECT_EQ(parse_problem(to_text(p), transposed_problem), p) << text << " → " << to_text(p);
    };
    for (const char *text : convolutions) check(text, false);
    for (const char *text : transposed) check(text, true);
    for (const char *text : {"ic3ih8oc4oh4kh3sh2ph0", "ic3ih5oc4oh5kh3ph0", "ic3ih5oc4oh5kh3ph2",
             "g1mb0ic3ih9iw7oc4kh3kw2", "ic3id4ih5iw6oc4kd3kh3kw3", "ic3id4ih4iw4oc4kd3kh3kw3sw2",
             "ic3iw1oc4kw1", "ic3ih9oc4kh3dh3ph9sh4nx*7", "ic3ih5oc4kh6sh2"}) {
        check(text, false);
    }
    check("ic1ih4oc1oh10kh3sh2ph0", true);
    check("ic1ih4oc1oh10kh3sh3dh2ph1", true);
}

TEST(problem_string, shortest_form_is_the_usual_one) {
    for (const char *text : {R"(mb16ic64ih56oc64oh56kh3ph1n"resnet50:res2_3x3*3")",
             R"(g32mb16ic32ih112oc32oh112kh3ph1n"mobilenet2:dw1")",
             R"(mb16ic256ih56oc512oh28kh1sh2n"resnet50:res3_down")",
             R"(mb8ic64iw4096oc128ow4096kw2dw7pw8n"wavenet:d8")"})
        EXPECT_EQ(to_text(conv(text)), text);
    EXPECT_EQ(
        to_text(conv(R"(mb16ic64ih56oc64oh56kh3ph1n"x")"), false), "mb16ic64ih56oc64oh56kh3ph1");
    EXPECT_EQ(to_text(conv("ic32id64ih64iw64oc64kd3kh3kw3pd1ph1pw1")), "mb2ic32id64oc64od64kd3pd1");
}

/// The message for `text`, with its position; fails the test if there is none.
struct refusal {
    std::string message;
    std::size_t position;
};
refusal refused(const std::string &text, bool transposed_problem = false) {
    try {
        parse_problem(text, transposed_problem);
    } catch (const problem_error &e) {
        return {e.what(), e.position};
    }
    ADD_FAILURE() << text << " was accepted";
    return {};
}

TEST(problem_string, refusals_name_the_position) {
    struct {
        const char *text;
        std::size_t position;
        const char *part;
    } const rows[] = {
        {"xb2ic3ih5oc4kh3", 0, "unknown part 'xb'"},
        {"mb2ic3xh5oc4kh3", 6, "unknown part 'xh'"},
        {"mb2ic3ih5oc4kx3", 12, "unknown part 'kx'"},
        {"mb2ic3ih5oc4kh3 ", 15, "unknown part ' '"},
        {"mbic3ih5oc4kh3", 2, "expected a number after mb"},
        {"mb2ic3ih5oc4kh", 14, "expected a number after kh"},
        {"g_2ic4ih5oc4kh3", 1, "expected a number after g"},
        {"mb2ic3ih5oc4kh-3", 14, "kh is -3, but must be ≥ 0"},
        {"mb2ic3ih5oc4kh3ph-1", 17, "ph is -1"},
        {"mb2ic99999999999999999999ih5oc4kh3", 5, "ic does not fit 64 bits"},
        {"m", 0, "unknown part 'm'"},
    };
    for (const auto &row : rows) {
        const refusal r = refused(row.text);
        EXPECT_EQ(r.position, row.position) << row.text;
        EXPECT_NE(r.message.find(row.part), std::string::npos) << row.text << ": " << r.message;
    }
}

TEST(problem_string, refusals_of_what_does_not_fit) {
    struct {
        const char *text;
        bool transposed_problem;
        const char *part;
    } const rows[] = {
        {"", false, "ic is missing"},
        {"n\"only a name\"", false, "ic is missing"},
        {"mb2ih5oc4kh3", false, "ic is missing"},
        {"mb2ic3ih5kh3", false, "oc is missing"},
        {"mb2ic3oc4", false, "no spatial axis"},
        {"mb2ic3oc4kh3", false, "ih is missing"},
        {"mb2ic3ih5oc4", false, "kh is missing"},
        {"mb2ic3ih0oc4kh3", false, "ih is missing or 0"},
        {"mb2ic3ih5oc4kh3sh0", false, "sh is missing or 0"},
        {"ic3id5ih5oc4kd3kh3", false, "d alone (a cube) or all"},
        {"ic3id5iw5oc4kd3kw3", false, "d alone (a cube) or all"},
        {"g0ic3ih5oc4kh3", false, "g must be ≥ 1"},
        {"g2ic3ih5oc4kh3", false, "g 2 does not divide ic 3"},
        {"g3ic3ih5oc4kh3", false, "g 3 does not divide oc 4"},
        {"ic3ih5oc4kh9", false, "oh was left out"},
        {"ic3ih5oc4kh3ph9", true, "oh was left out"},
        {"ic3ih50oc4oh5kh3ph0", false, "give at least 48"},
        {"ic3ih50oc4oh5kh3", false, "the pad would be"},
        {"ic3ih4oc4oh20kh3sh2ph0", true, "output_padding) must be less than 2"},
        {"ic9223372036854775807ih9223372036854775807oc4kh3", false, "does not fit 64 bits"},
        {"mb9223372036854775807ic3ih5oc4kh3", false, "the size of src"},
        {"ic3ih5oc4kh9223372036854775807dh9223372036854775807ph9223372036854775807", false,
            "does not fit 64 bits"},
        {"ic3ih9223372036854775807oc4kh1sh9223372036854775807", true, "does not fit 64 bits"},
        {"ic3ih5oc4kh1dh9223372036854775807", false, "dh + 1 does not fit 64 bits"},
        {"mb0ic3ih9223372036854775807oc4kh3ph9223372036854775807", false, "does not fit 64 bits"},
    };
    for (const auto &row : rows) {
        const refusal r = refused(row.text, row.transposed_problem);
        EXPECT_NE(r.message.find(row.part), std::string::npos) << row.text << ": " << r.message;
    }
}

TEST(problem_string, caret_stands_under_the_position) {
    try {
        conv("mb2ic3xh5");
        FAIL();
    } catch (const problem_error &e) {
        const std::string text = describe(e, "mb2ic3xh5");
        EXPECT_NE(text.find("position 7"), std::string::npos) << text;
        EXPECT_NE(text.find("\n  mb2ic3xh5\n        ^"), std::string::npos) << text;
    }
}

TEST(problem_string, no_text_crashes) {
    // Every prefix, and every single character replaced: either a problem or a problem_error.
    const std::string text =
        R"(g2mb3_ic4id5ih6iw7_oc8od3oh4ow9_kd3kh2kw1_sd2sh3sw1_dd0dh1dw2_pd1ph3pw1_n"x*3")";
    const auto survives = [](const std::string &t) {
        for (bool d : {false, true}) {
            try {
                const auto p = parse_problem(t, d);
                EXPECT_EQ(parse_problem(to_text(p), d), p) << t;
            } catch (const problem_error &e) {
                EXPECT_FALSE(describe(e, t).empty());
            }
        }
    };
    for (std::size_t i = 0; i <= text.size(); ++i) survives(text.substr(0, i));
    for (std::size_t i = 0; i < text.size(); ++i) {
        for (const char c : std::string("0917 +-_\"*gmnickdhwsop\xff")) {
            std::string changed = text;
            changed[i] = c;
            survives(changed);
        }
    }
}

}  // namespace
}  // namespace convgrad::cli
