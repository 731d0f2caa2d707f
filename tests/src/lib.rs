//! What tests of the whole program share.
