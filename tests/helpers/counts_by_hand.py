"""Parameters and MACs of other papers' networks at 224 x 224, counted by hand, layer by layer."""

from __future__ import annotations

from typing import NamedTuple


class Counts(NamedTuple):
    binary: int  # weights of one bit
    binary_macs: int
    real: int  # weights of real convolutions and fully connected layers, and the latter's biases
    real_macs: int  # without the last layer
    classifier_inputs: int
    norm_channels: int
    other: int  # every other trained number


R18 = (10_985_472, 1_676_279_808)  # the 16 binary 3x3 convolutions of ResNet-18
R34 = (21_086_208, 3_525_967_872)
IMAGENET = {
    "reactnet-a": Counts(28_253_184, 4_816_896_000, 1_025_864, 10_838_016, 1024, 10_944, 42_656),
    "reactnet-b": Counts(27_554_816, 4_688_445_440, 1_200_456, 42_950_656, 1024, 10_944, 41_664),
    "reactnet-c": Counts(27_554_816, 4_688_445_440, 1_724_232, 139_288_576, 1024, 10_944, 41_664),
    "birealnet-18": Counts(*R18, 694_440, 137_281_536, 512, 4_800, 0),
    "birealnet-34": Counts(*R34, 694_440, 137_281_536, 512, 8_512, 0),
    "birealnet-50": Counts(20_672_512, 3_596_615_680, 5_003_432, 567_590_912, 2048, 26_560, 0),
    "birealnet-152": Counts(55_209_984, 11_021_058_048, 5_003_432, 567_590_912, 2048, 75_712, 0),
    "reactnet-r18": Counts(*R18, 694_440, 137_281_536, 512, 4_800, 14_912),
    "real2bin-r18": Counts(*R18, 988_840, 137_575_936, 512, 4_352, 3_904),
    "xnornet-r18": Counts(*R18, 694_440, 137_281_536, 512, 3_456, 0),
    "xnornetpp-r18": Counts(*R18, 694_440, 137_281_536, 512, 3_456, 4_680),
    "xnornet-alexnet": Counts(58_236_928, 1_025_744_896, 4_130_848, 105_415_200, 4096, 9_664, 10_568),
    "abcnet-r18": Counts(
        54_927_360, 41_906_995_200, 694_440, 137_281_536, 512, 4_800, 160
    ),  # 16 layers, 5 v and 5 beta
    "abcnet-r34": Counts(5 * R34[0], 25 * R34[1], 694_440, 137_281_536, 512, 8_512, 320),
    "groupnet-r18": Counts(55_099_392, 8_477_736_960, 522_408, 118_013_952, 512, 20_160, 7),
    "groupnet-r34": Counts(105_603_072, 17_726_177_280, 522_408, 118_013_952, 512, 38_720, 15),
    "meliusnet-22": Counts(6_119_424, 4_624_220_160, 800_072, 135_876_608, 512, 12_544, 0),
    "meliusnet-29": Counts(10_321_920, 5_469_585_408, 965_960, 128_851_968, 640, 20_224, 0),
    "meliusnet-42": Counts(24_956_928, 9_692_798_976, 1_775_176, 174_010_368, 1056, 46_720, 0),
    "meliusnet-59": Counts(52_641_792, 18_316_247_040, 2_721_352, 245_762_048, 1312, 96_096, 0),
    "meliusnet-a": Counts(8_441_856, 4_851_818_496, 763_464, 86_729_216, 672, 16_832, 0),
    "meliusnet-b": Counts(11_280_384, 5_722_472_448, 914_760, 106_423_296, 704, 22_016, 0),
    "meliusnet-c": Counts(11_427_840, 4_353_269_760, 768_072, 82_213_376, 672, 22_176, 0),
    "mobilenet-v1": Counts(0, 0, 4_210_088, 567_716_352, 1024, 10_944, 0),
    "resnet-34": Counts(0, 0, 21_780_648, 3_663_249_408, 512, 8_512, 0),
    "regnetx-400mf": Counts(0, 0, 5_458_120, 413_412_608, 400, 18_928, 0),
}
