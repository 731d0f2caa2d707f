//! Makes the default encoder's bundle from its weights: `default_bundle MODEL_DIR BUNDLE_DIR`. `mopqdb setup` does the
//! same and also downloads the weights.

fn main() -> mopqdb::Result<()> {
    let paths: Vec<std::path::PathBuf> = std::env::args_os().skip(1).map(Into::into).collect();
    let [from, to] = &paths[..] else {
        return Err(mopqdb::Error::Invalid(
            "usage: default_bundle MODEL_DIR BUNDLE_DIR".into(),
        ));
    };
    let bundle = mopqdb::bundle::make_default_bundle(from, to)?;
    println!("{} {}", bundle.model_id().short(), bundle.dir().display());
    Ok(())
}
