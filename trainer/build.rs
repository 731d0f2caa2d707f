//! Tells the linker where libtorch is at run time, so that `cargo run`, `cargo test` and the program itself work
//! without environment variables.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // torch-sys reports where it found libtorch, because it is a direct dependency (`links = "tch"`).
    let Ok(found) = std::env::var("DEP_TCH_LIBTORCH_LIB") else {
        println!(
            "cargo:warning=torch-sys did not report where libtorch is; set LD_LIBRARY_PATH to run the trainer"
        );
        return;
    };
    let lib = absolute(Path::new(&found));
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    // A checkout that was moved can still run its debug builds: from target/debug/ (programs) and target/debug/deps/
    // (tests). A release build may run anywhere, and other users may be able to write to a folder above it.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        for up in ["../..", "../../.."] {
            println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/{up}/.native/libtorch/lib");
        }
    }
    // libtorch's CUDA half registers itself when it is loaded, but nothing refers to it by name, so it must be kept
    // explicitly.
    if lib.join("libtorch_cuda.so").exists() {
        println!("cargo:rustc-link-arg=-Wl,--no-as-needed");
        println!("cargo:rustc-link-arg=-ltorch_cuda");
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}
