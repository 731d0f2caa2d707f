//! Tells the linker where libtorch will be found at run time, so that `cargo run`, `cargo test` and the bare
//! program work with an empty environment.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // torch-sys says where it found libtorch, since it is a direct dependency of ours (`links = "tch"`).
    let Ok(found) = std::env::var("DEP_TCH_LIBTORCH_LIB") else {
        println!(
            "cargo:warning=torch-sys did not say where libtorch is; set LD_LIBRARY_PATH to run the trainer"
        );
        return;
    };
    let lib = absolute(Path::new(&found));
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    // A checkout that has moved still runs its debug builds: from target/debug/ (programs) and target/debug/deps/ (tests).
    // A release build may be run anywhere, and a folder above it may be one that other users can write to.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        for up in ["../..", "../../.."] {
            println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/{up}/.native/libtorch/lib");
        }
    }
    // libtorch's CUDA half registers itself when loaded, but nothing refers to it by name: keep it if it is there.
    if lib.join("libtorch_cuda.so").exists() {
        println!("cargo:rustc-link-arg=-Wl,--no-as-needed");
        println!("cargo:rustc-link-arg=-ltorch_cuda");
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}
