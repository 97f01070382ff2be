/* What the tables below are made of: no pointers, no padding, so their size is the same on every machine. */

typedef struct { /* a row of parameters: numbers, or times a step bytes and 16-bit numbers */
    uint32_t at;  /* of 16-bit numbers with the bit WIDE */
    int32_t step;
} vec;

typedef struct { /* before step y of an op, rows up to y * mul / div + add of a map must be there */
    uint16_t map, mul, div, most;
    int32_t add;
} need;

typedef struct { /* a branch of a binary convolution */
    vec above, scale, offset;
    uint32_t weight, pad; /* in words; NONE: a tap outside the map contributes nothing */
    int16_t dy, dx;
    uint16_t up, spare;
} branch;

typedef struct { /* what follows the sums, value by value: parameters a channel, and the other map */
    vec a, b;
    uint16_t map, spare;
} ending;

typedef struct { /* an op, and the map that it makes */
    vec a, b, c;
    uint32_t at;    /* in `slots`, where its rows begin in the arena's numbers; a constant's: in `numbers` */
    uint32_t extra; /* in `wide`: offsets of 32 bits */
    int32_t top, left;
    uint16_t kind, steps, height, width, channels;
    uint16_t reads, groups;
    uint16_t needs, need_count, parts, part_count, endings, finish;
    uint16_t kernel_y, kernel_x, stride_y, stride_x, dilation_y, dilation_x;
    uint16_t source, shift, half;
} op;

typedef char op_has_no_padding[sizeof(op) == 84 ? 1 : -1];
typedef char ending_has_no_padding[sizeof(ending) == 20 ? 1 : -1];
typedef char branch_has_no_padding[sizeof(branch) == 40 ? 1 : -1];
typedef char need_has_no_padding[sizeof(need) == 12 ? 1 : -1];

#define NONE 0xffffffffu
#define WIDE 0x80000000u
