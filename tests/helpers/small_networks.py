"""Small forms of other papers' networks, each with every op that its full size has."""

# Narrow: what is tested is which ops they are made of.
FORMS = {
    "bnn-r18-cifar": {"width": 0.25},
    "xnornet-nin": {"width": 0.25},
    "xnornet-r18-cifar": {"width": 0.25, "input_scale": True},
    "xnornetpp-r18-cifar": {"width": 0.25},
    "abcnet-r18-cifar": {"width": 0.125, "bases": 2},
    "birealnet-20-cifar": {},
    "birealnet-50-cifar": {"width": 0.25},
    "groupnet-r18-cifar": {"width": 0.125, "bases": 2},
    "meliusnet-22-cifar": {"width": 0.5},
    "meliusnet-a-cifar": {"width": 0.5},
    "reactnet-a-cifar": {"width": 0.25},
    "reactnet-c-cifar": {"width": 0.25},
    "real2bin-r18-cifar": {"width": 0.25},
    "mobilenet-v1-cifar": {"width": 0.25},
    "regnetx-400mf-cifar": {"width": 0.5},
}
