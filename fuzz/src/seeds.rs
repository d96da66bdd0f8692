//! Writes the seeds of every target to `libfuzzer/corpus/<target>/`, where `cargo fuzz run` looks.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer/corpus");
    for (name, _) in fuzz::TARGETS {
        let folder = corpus.join(name);
        fs::create_dir_all(&folder)?;
        for (number, seed) in fuzz::seeds(name).iter().enumerate() {
            fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
    }
    Ok(())
}
