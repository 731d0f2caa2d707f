//! An embedded approximate-nearest-neighbour database whose quantizer learns what its users search for.
